"""The directory: what operators create, alter and delete at run time reaches every node (F-J10).

Theory of operation. For each destination that was ever created or altered at run time a node keeps
an *entry*: its attributes, or that it is deleted, with a version and the node that made it. A
change here makes the next version. Of two entries the one of the higher version holds, of one
version that of the higher index; so all nodes end alike, whatever was cut meanwhile, and a delete
is not undone by who has not heard of it. Nodes tell one another all entries when they meet
and now and then, and a change at once.

A delete that comes from another node loses no message: the destination stays until nobody uses it
and nothing waits there, and is gone then. What cannot be done here is told in the status and tried
again.
"""

from collections.abc import Iterable

from hms.engine.admin import destination_lifecycle
from hms.engine.effects import Effects
from hms.engine.flow.destination_control import Lifetime
from hms.engine.log.state_records import write
from hms.engine.queue.destinations import Queue, Topic
from hms.engine.state import State
from hms.errors.catalogue import DestinationNotFound
from hms.errors.tree import HmsError
from hms.records import Entry, entries
from hms.wire.operations import Operation

VERBS = frozenset(
    f"{kind}.{verb}"
    for kind in ("queue", "topic")
    for verb in ("create", "alter", "delete", "pause", "resume")
)
"""Commands that other nodes have to hear of."""
PER_WORD = 500

Key = tuple[str, str]


class Directory:
    """This node's entries; they are in the log."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._entries = state.moves.directory
        self.faults: dict[Key, str] = {}
        """What could not be done here, and why."""

    def reconcile(self, fx: Effects) -> None:
        """At boot: a crash may have come between a change and its entry."""
        for target in self._state.destinations():
            if (
                target.control.life is Lifetime.CREATED
                and (target.kind, target.name) not in self._entries
            ):
                self._made(target.kind, target.name, fx)
        for key, entry in list(self._entries.items()):
            if not entry.is_deleted and self._find(key) is None:
                self._made(*key, fx)

    def changed(self, verb: str, arguments: Operation, fx: Effects) -> Entry | None:
        """An operator's command was done; what the other nodes get of it."""
        kind, name = verb.partition(".")[0], getattr(arguments, "name", "")
        target = self._find((kind, name))
        if target is not None and target.control.life not in (
            Lifetime.CREATED,
            Lifetime.CONFIGURED,
        ):
            return None  # a client's own
        if target is None and (kind, name) not in self._entries:
            return None
        return self._made(kind, name, fx)

    def told(self, news: Iterable[Entry], fx: Effects) -> None:
        """What another node knows."""
        for entry in news:
            key = entry.kind, entry.name
            known = self._entries.get(key)
            if known is None or (entry.version, entry.node) > (known.version, known.node):
                self._try(key, entry, fx)
                write(self._state, entries([entry]), fx)

    def all(self) -> list[list[Entry]]:
        """All entries, by so many as one word carries."""
        found = [self._entries[key] for key in sorted(self._entries)]
        return [found[i : i + PER_WORD] for i in range(0, len(found), PER_WORD)]

    def retry(self, fx: Effects) -> None:
        """Try again what could not be done."""
        for key in list(self.faults):
            self._try(key, self._entries[key], fx)

    def _made(self, kind: str, name: str, fx: Effects) -> Entry:
        known, target = self._entries.get((kind, name)), self._find((kind, name))
        version = 1 if known is None else known.version + 1
        string, altered, paused = "", {}, ""
        if target is not None:
            definition = target.definition
            string, paused = definition.topic_string, definition.paused
            altered = dict(definition.altered)
        index, is_deleted = self._state.settings.node_index, target is None
        entry = Entry(kind, name, version, index, is_deleted, altered, string, paused)
        self.faults.pop((kind, name), None)
        write(self._state, entries([entry]), fx)
        return entry

    def _try(self, key: Key, entry: Entry, fx: Effects) -> None:
        self.faults.pop(key, None)
        try:
            reason = self._apply(key, entry, fx)
        except HmsError as fault:
            reason = str(fault)
        if reason:
            self.faults[key] = reason

    def _apply(self, key: Key, entry: Entry, fx: Effects) -> str:
        """Do what an entry says; why it cannot be done yet, "" when it is."""
        target = self._find(key)
        if entry.is_deleted:
            return "" if target is None else self._delete(target, fx)
        if target is None:
            given = {**entry.attributes, "topic_string": entry.topic_string}
            wanted = given if entry.kind == "topic" else entry.attributes
            target = destination_lifecycle.create(self._state, entry.kind, entry.name, wanted, fx)
        else:
            back = dict.fromkeys(target.control.altered)
            destination_lifecycle.alter(self._state, target, {**back, **entry.attributes}, fx)
        if target.control.paused != entry.paused:
            destination_lifecycle.resume(self._state, target, "BOTH", fx)
            if entry.paused:
                destination_lifecycle.pause(self._state, target, entry.paused, fx)
        return ""

    def _delete(self, target: Queue | Topic, fx: Effects) -> str:
        line = target.line if isinstance(target, Queue) else None
        if line is not None and line.waiting_count + line.delayed_count + line.out_count:
            return "it is deleted elsewhere, and goes when nothing waits in it any more"
        reason = destination_lifecycle.reason_to_stay(self._state, target)
        if not reason:
            destination_lifecycle.delete(self._state, target, fx)
        return reason

    def _find(self, key: Key) -> Queue | Topic | None:
        try:
            return self._state.destination(*key)
        except DestinationNotFound:
            return None
        except HmsError:
            return None  # a destination of the other kind has its name
