"""Auditing at a secured node: what operators order, and what is refused, becomes a record of the
log, right before the records of the command itself, which name its number, and before its reply.

Of equal refusals, and of equal logins, the first is recorded at once, the rest of the minute as one
record with a count. When the first ones of a minute take BYTES_A_MINUTE, further ones are `others`:
with the counts that come behind, a flood takes less than 1 MiB of the disk in any minute. Refusals,
logins, and connections that were not let in have a minute each: a flood of attempts hides nobody
who got in, and one of connections no attempt.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from hms.engine.effects import Effects
from hms.engine.log.audit_chain import AuditChain
from hms.records.audit import (
    NO_DETAILS,
    NO_HASH,
    AuditDetails,
    AuditEntry,
    digest_of,
    with_details,
)
from hms.server.entrance import NoNews
from hms.server.logins.identities import Login
from hms.server.logins.security_document import (
    BY_NODE,
    BY_USER,
    SecurityDocument,
    differences,
)
from hms.server.refused_connections import OTHERS, Refused
from hms.wire.commands import Action, Order, Repeat, concerns
from hms.wire.operations import SelectMessages

__all__ = ["OTHERS", "Auditing"]

KEYS_MAX = 10_000
MINUTE_MS = 60_000
BYTES_A_MINUTE = 200 << 10
STRANGERS_BYTES_A_MINUTE = 100 << 10
ENTRY_BYTES = 192
"""What a refusal takes in the log beside its words: numbers, hashes, and the head of its record."""
WORD_MAX = 200
NO_ARGUMENTS: dict[str, Any] = {}
NAMED_MAX = 50
"""So many changed sections are named."""
_Key = tuple[str, str, str, str, int]
"""User, source, action, resource, number of the error."""


class _Counted:
    """Equal events. command: what their records say; bytes_max: what the first ones of a minute
    take."""

    def __init__(self, command: str, bytes_max: int = BYTES_A_MINUTE) -> None:
        self.command, self._bytes_max = command, bytes_max
        self._counts: dict[_Key, tuple[int, int]] = {}
        """When the first of this minute came, and how many after it."""
        self._minute_ms = self._spent = 0
        """When the present minute began, and the bytes of its first ones."""

    def came(
        self, key: _Key, now_ms: int, arguments: dict[str, Any], details: AuditDetails, times: int
    ) -> tuple[_Key, str] | None:
        """What of it is recorded now: nothing when it is only counted. times: so many of it."""
        said = ""
        if key not in self._counts:  # of the first alone: a flood costs little
            is_told = arguments or details != NO_DETAILS
            said = with_details(arguments, details) if is_told else ""
            if not self._has_room(key, said, now_ms):
                key, said = (OTHERS, "", "", "", key[4]), ""
        began_ms, count = self._counts.get(key, (now_ms, -1))
        self._counts[key] = began_ms, count + times
        return (key, said) if count < 0 else None

    def _has_room(self, key: _Key, said: str, now_ms: int) -> bool:
        """Whether one more gets a record of its own."""
        if now_ms - self._minute_ms >= MINUTE_MS:
            self._minute_ms, self._spent = now_ms, 0
        size = ENTRY_BYTES + sum(len(word.encode()) for word in (*key[:4], said))
        if len(self._counts) >= KEYS_MAX or self._spent + size > self._bytes_max:
            return False
        self._spent += size
        return True

    def is_due(self, now_ms: int) -> bool:
        return any(now_ms - began >= MINUTE_MS for began, _ in list(self._counts.values()))

    def due(self, now_ms: int, *, is_last: bool) -> Iterator[tuple[_Key, int]]:
        """Those whose minute is over, or all, with how many came behind the first; each once."""
        for key, (began_ms, count) in list(self._counts.items()):
            if is_last or now_ms - began_ms >= MINUTE_MS:
                del self._counts[key]
                if count:
                    yield key, count


class Auditing:
    """Under the engine's lock."""

    def __init__(self, chain: AuditChain) -> None:
        self._chain = chain
        self._refusals, self._logins = _Counted("refused"), _Counted("login")
        self._strangers = _Counted("refused", STRANGERS_BYTES_A_MINUTE)
        self.no_news: NoNews = lambda _records: None
        """As of Entrance.heed()."""

    def ordered(
        self,
        login: Login | None,
        order: Order,
        error: int,
        now_ms: int,
        fx: Effects,
        details: AuditDetails = NO_DETAILS,
    ) -> None:
        """A command of an operator that changes something, done or failed, or UNKNOWN."""
        self.ordered_by(_who(login), order, error, now_ms, fx, details)

    def ordered_by(
        self,
        who: tuple[str, str],
        order: Order,
        error: int,
        now_ms: int,
        fx: Effects,
        details: AuditDetails = NO_DETAILS,
    ) -> None:
        """The same, by user and where that one is."""
        given = order.arguments
        if isinstance(given, SelectMessages) and given.is_erasure:
            given = msgspec.structs.replace(given, selector="***")
        self._order(who, order, msgspec.to_builtins(given), details, error, now_ms, fx)

    def ended(
        self,
        login: Login | None,
        order: Order,
        audit_number: int,
        error: int,
        now_ms: int,
        fx: Effects,
        details: AuditDetails = NO_DETAILS,
    ) -> None:
        """How the command ended whose record has that number, and did not know it."""
        self._order(_who(login), order, {"order": audit_number}, details, error, now_ms, fx)

    def _order(
        self,
        who: tuple[str, str],
        order: Order,
        arguments: dict[str, Any],
        details: AuditDetails,
        result: int,
        now_ms: int,
        fx: Effects,
    ) -> None:
        command = order.command
        if command.repeat is Repeat.READ:
            return
        about = str(command.action), concerns(command, order), command.name
        self._add(who, *about, with_details(arguments, details), result, 1, now_ms, fx)

    def number_of(self, order: Order) -> int:
        """The number that the next command's record has; 0 for one that leaves none."""
        return 0 if order.command.repeat is Repeat.READ else self.next_number()

    def next_number(self) -> int:
        """The number of the record that comes next."""
        return self._chain.number + 1

    def head(self) -> tuple[int, str]:
        """Number and hash of the last record; 0 and "" where there is none."""
        number = self._chain.number
        return number, self._chain.head.hex() if number else ""

    def refused(
        self,
        user: str,
        source: str,
        action: str,
        resource: str,
        error: int,
        now_ms: int,
        fx: Effects,
        details: AuditDetails = NO_DETAILS,
        arguments: dict[str, Any] = NO_ARGUMENTS,
    ) -> None:
        """A command, or a login, that is not allowed. details, arguments: of the first one; those
        that are counted behind it may be other connections', and have other reasons."""
        key = user[:63], source, action, resource[:255], error
        self._came(self._refusals, key, arguments, details, now_ms, fx)

    def not_let_in(self, refused: Iterable[Refused], now_ms: int, fx: Effects) -> None:
        """Connections that were refused, or cut, without a word to the gate."""
        for one in refused:
            about = one.user[:63], one.source, str(Action.CONNECT), one.resource[:255], one.error
            key = about if one.source else (OTHERS, "", "", "", one.error)
            said = {"why": one.why, "key": one.key}
            said = {name: text[:WORD_MAX] for name, text in said.items() if text}
            self._came(self._strangers, key, said, NO_DETAILS, now_ms, fx, one.count)

    def let_in(
        self, login: Login, by: str, now_ms: int, fx: Effects, details: AuditDetails
    ) -> None:
        """A login; by: with what, a password, a key, a token. Where it came from is told without
        the port, as of refusals. WELCOME does not wait for the record: an operator logs in also
        while the log waits for another copy."""
        source = f"{login.caller.source} {login.authority}"
        key = login.user, source, str(Action.CONNECT), f"listener:{login.caller.listener}", 0
        before, must_wait = len(fx.records), fx.must_wait
        self._came(self._logins, key, {"by": by}, details, now_ms, fx)
        fx.unawaited += len(fx.records) - before
        fx.must_wait = must_wait
        if not before:
            self.no_news(fx.records)

    def _came(
        self,
        counted: _Counted,
        key: _Key,
        arguments: dict[str, Any],
        details: AuditDetails,
        now_ms: int,
        fx: Effects,
        times: int = 1,
    ) -> None:
        told = counted.came(key, now_ms, arguments, details, times)
        if told is not None:
            self._event(counted, told[0], told[1], 1, now_ms, fx)

    def changed(
        self,
        before: SecurityDocument,
        after: SecurityDocument,
        closed: int,
        now_ms: int,
        fx: Effects,
    ) -> None:
        """Another version of the security file holds: who made it, as the file says, and which
        sections are other ones. A file that was edited by hand has the author of its last command.
        """
        changed = differences(before, after)
        value = {"version": after.version, "closed": closed, "changed": changed[:NAMED_MAX]}
        if len(changed) > NAMED_MAX:
            value["more"] = len(changed) - NAMED_MAX
        is_told = after.version > before.version and after.changed_by
        by = after.changed_by.removeprefix(BY_USER)
        by = by if after.changed_by.startswith(BY_USER) else f"os:{by}"
        by = "system" if after.changed_by == BY_NODE else by
        who = (by, "security file") if is_told else ("system", "")
        digests = AuditDetails(before=_version(before), after=_version(after))
        said = with_details(value, digests)
        self._add(who, "secure", "role:*", "policy", said, 0, 1, now_ms, fx)

    def key_changed(self, resource: str, command: str, key: str, now_ms: int, fx: Effects) -> None:
        """A listener or a node shows another key, or is going to; the public half is told."""
        said = msgspec.json.encode({"public": key}).decode()
        self._add(("system", ""), "secure", resource, command, said, 0, 1, now_ms, fx)

    def booted(
        self, who: tuple[str, str], node: str, facts: dict[str, Any], now_ms: int, fx: Effects
    ) -> None:
        """The node begins to work. who: has booted it, and from where; facts: how, and what a COLD
        boot has deleted."""
        self._of_node(who, node, "boot", facts, now_ms, fx)

    def was_killed(self, node: str, last_ms: int, now_ms: int, fx: Effects) -> None:
        """The node's last life ended without a stop; last_ms: the last time that its log has."""
        self._of_node(("system", ""), node, "no orderly stop", {"last_ms": last_ms}, now_ms, fx)

    def stopped(self, node: str, moves_to: str, now_ms: int, fx: Effects) -> None:
        """The node has finished what it took, and ends; moves_to: the replica that goes on."""
        facts = {"moves_to": moves_to} if moves_to else {}
        self._of_node(("system", ""), node, "stop", facts, now_ms, fx)

    def _of_node(
        self,
        who: tuple[str, str],
        node: str,
        command: str,
        facts: dict[str, Any],
        now_ms: int,
        fx: Effects,
    ) -> None:
        said = msgspec.json.encode(facts).decode()
        self._add(who, str(Action.OPERATE), f"node:{node}", command, said, 0, 1, now_ms, fx)

    def is_due(self, now_ms: int) -> bool:
        """Whether a minute of some refusals or logins is over; from any thread."""
        every = self._logins, self._refusals, self._strangers
        return any(one.is_due(now_ms) for one in every)

    def flush(self, now_ms: int, fx: Effects, *, is_last: bool = False) -> None:
        """Record how many of them came behind the first of their minute; is_last: of all minutes,
        as the node stops."""
        is_alone = not fx.records
        self._flush(self._logins, now_ms, fx, is_last=is_last)
        if is_alone:
            self.no_news(fx.records)
        self._flush(self._refusals, now_ms, fx, is_last=is_last)
        self._flush(self._strangers, now_ms, fx, is_last=is_last)

    def _flush(self, counted: _Counted, now_ms: int, fx: Effects, *, is_last: bool) -> None:
        for key, count in counted.due(now_ms, is_last=is_last):
            self._event(counted, key, "", count, now_ms, fx)

    def _event(
        self, counted: _Counted, key: _Key, said: str, count: int, now_ms: int, fx: Effects
    ) -> None:
        user, source, action, resource, error = key
        what = action, resource, counted.command, said, error, count
        self._add((user, source), *what, now_ms, fx)

    def _add(
        self,
        who: tuple[str, str],
        action: str,
        resource: str,
        command: str,
        arguments: str,
        error: int,
        count: int,
        now_ms: int,
        fx: Effects,
    ) -> None:
        user, source = who
        entry = AuditEntry(
            0, now_ms, user, source, action, resource, command, arguments, error, count, NO_HASH
        )
        self._chain.append(entry, fx)


def _version(document: SecurityDocument) -> dict[str, Any]:
    return {"version": document.version, **digest_of(document)}


def _who(login: Login | None) -> tuple[str, str]:
    """The user, and where that one is; without a login the node itself."""
    return ("system", "") if login is None else (login.user, f"{login.caller} {login.authority}")
