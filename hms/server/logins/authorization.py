"""Authorisation: from a command to the permissions that it needs, and whether its user has them.

What a row of the table of commands says is the rule; commands that concern what a connection has
open, a resolved topic or several resources have one of their own here. Producers, consumers,
services and subscriptions are looked at when they are opened, and again when the policy changes
(live_changes.py); so a SEND or a SETTLE is looked at by nobody.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hms.engine.admin.message_selection import subscription_name
from hms.engine.admin.topic_operations import pattern_of
from hms.engine.engine import Engine
from hms.engine.messages import StoredMessage
from hms.engine.queue.destinations import Queue
from hms.engine.schedule.schedule_plans import Plan
from hms.engine.session.session_objects import Consumer, Producer
from hms.engine.topic import Pattern
from hms.errors.catalogue import ExportNameNotFound, NotAuthorized
from hms.errors.tree import HmsError
from hms.server.logins.identities import NODE_USER, Login
from hms.server.logins.user_counts import OPENS, UserCounts
from hms.wire import structures as wire
from hms.wire.commands import Action, Command, Order, concerns
from hms.wire.frames import Kind
from hms.wire.packed_messages import KIND_FILE, NODE_FILE

__all__ = ["TEMPORARY", "Authorization", "Need", "consumer_needs", "needs_of", "producer_needs"]

TEMPORARY = "HMS.TEMP."
FILES_KEPT_MAX = 1000

Need = tuple[Action, str, str]
"""Action, kind and name."""
_A = Action
_BEFORE = (_A.OWN, _A.CONNECT)
"""What needs no more than a login, and what leads to one (login_gate.py)."""
_OF_MESSAGES = (
    "message.list",
    "message.view",
    "message.delete",
    "message.expire",
    "message.forwarded",
    "message.hold",
    "message.release",
)
_LOOKUP = "destination.lookup.show"
_KNOWN_BY: Mapping[str, tuple[Action, ...]] = {
    "queue": (_A.BROWSE, _A.CONSUME, _A.PRODUCE, _A.VIEW),
    "topic": (_A.SUBSCRIBE, _A.PUBLISH, _A.VIEW),
}
"""Who may do one of these to a destination may know that it is there."""
_XA_ENDS = ("XaPrepare", "XaCommit", "XaRollback", "XaForget")


class Authorization:
    """logins: of connections, by their number; calls_of: as of UserCounts."""

    def __init__(
        self, engine: Engine, logins: dict[int, Any], node: str, calls_of: Callable[[int], int]
    ) -> None:
        self._engine = engine
        self.logins: dict[int, Login] = logins
        self.denied: dict[tuple[int, int], tuple[Producer, HmsError]] = {}
        """Producers, by connection and handle, that were granted and are not any more."""
        self.counts = UserCounts(engine, self.logins, calls_of)
        self._node = node
        self._files: dict[tuple[int, str], None] = {}
        """Files that connections have been seen to hold a message of."""
        rules: dict[str, Callable[[Login, Any, int], None]] = {
            "OpenProducer": self._open_producer,
            "OpenConsumer": self._open_consumer,
            "Unsubscribe": self._unsubscribe,
            "SCHEDULE": self._schedule,
            "OpenFile": self._send_file,
            "CloseFile": self._send_file,
            "FILE": self._send_file,
            "ReadFile": self._read_file,
            "Browse": self._browse,
            "NOTICE": self._notice,
            "subscription.create": self._create_subscription,
            "topic.clear_retained": self._clear_retained,
            "message.move": self._move_messages,
            "message.copy": self._move_messages,
            "message.alter": self._alter_messages,
            "dlq.return": self._return_letters,
            "schedule.list": self._list_schedules,
            "schedule.show": self._named_schedule,
            "schedule.cancel": self._named_schedule,
        }
        rules |= dict.fromkeys(_OF_MESSAGES, self._messages)
        ends: dict[str, Callable[[Login, Any, int], None]] = dict.fromkeys(
            _XA_ENDS, self._end_branch
        )
        self._rules = rules | ends

    def permit(self, command: Command, head: Any, connection: int | None) -> None:
        """Return, or raise NotAuthorized; see hms.server.permissions.Permit. Without a call of its
        own for what comes with every message: of a SEND, a SETTLE, a CALL and a RESULT."""
        if connection is None:
            return
        kind = command.kind
        if kind is Kind.SEND:
            if self.denied:
                self._check_granted(connection, head.producer)
            return
        opens = command.name in OPENS
        if command.action in _BEFORE and not opens:
            return
        login = self.logins[connection]
        if kind is Kind.CALL and not self.counts.limits.get(login.user):
            if login.rights.decided.get((command.action, "service", head[0].service)):
                return
        elif opens:
            self.counts.check(command, head, login)
            if command.action in _BEFORE:
                return
        rule = self._rules.get(command.name)
        if rule is not None:
            rule(login, head, connection)
        else:
            plain = head[0] if isinstance(head, tuple) and not isinstance(head, Order) else head
            self._check_row(login, command, concerns(command, plain))

    def ending(self) -> list[tuple[int, Login]]:
        """Connections whose login ends some time; from any thread. Most never do, and are passed
        over without a call of Python: this is asked twice a second."""
        return [(number, one) for number, one in list(self.logins.items()) if one.expires_ms]

    def _check_granted(self, connection: int, handle: int) -> None:
        """Another producer may have the handle of one that was closed."""
        producer, fault = self.denied.get((connection, handle), (None, None))
        if fault is not None:
            there = self._engine.state.connection(connection).producers.get(handle)
            if there is producer:
                raise fault

    def shown(self, connection: int, asked: Order, value: Any) -> Any:
        """Of a list, what its user may view; of a lookup, what it may open."""
        if asked.command.name == _LOOKUP:
            self._check_known(self.logins[connection], asked, value)
        if not isinstance(value, list) or asked.command.action is not _A.VIEW:
            return value
        kind, rights = asked.command.resource, self.logins[connection].rights
        return [row for row in value if _may_view(rights.allows, kind, row)]

    def _check_known(self, login: Login, asked: Order, found: Mapping[str, str]) -> None:
        """Nobody learns by a lookup that there is what it may not use: the answer is the same as
        when there is nothing."""
        kind, name = found["kind"], found["name"]
        if kind == "topic":
            name = self._resolved(name, "")
        is_known = name.startswith(TEMPORARY) or any(
            login.rights.allows(action, kind, name) for action in _KNOWN_BY[kind]
        )
        if not is_known:
            given: Any = asked.arguments
            raise ExportNameNotFound(export_name=given.name)

    def forget_gone(self) -> None:
        """What is remembered of connections that are not there any more."""
        self.denied = {key: one for key, one in self.denied.items() if key[0] in self.logins}
        self._files = {key: None for key in self._files if key[0] in self.logins}

    # what commands need

    def _check_row(self, login: Login, command: Command, resource: str) -> None:
        """A whole kind is asked for by who may do it to some of them; its rows are looked at one
        by one (shown())."""
        kind, colon, name = resource.partition(":")
        if kind == "node":
            name = self._node
        elif not colon and kind == "transaction":
            name = "*"
        elif not colon:
            if not login.rights.allows_any(command.action, kind):
                raise _refusal(login, command.action, f"{kind}:*")
            return
        self.require(login, [(command.action, kind, name)])

    def require(self, login: Login, needs: Sequence[Need]) -> None:
        """NotAuthorized for the first that is not granted."""
        for action, kind, name in needs:
            if not login.rights.allows(action, kind, name):
                raise _refusal(login, action, f"{kind}:{name}")

    def _open_producer(self, login: Login, asked: wire.OpenProducer, _: int) -> None:
        if asked.kind == wire.TOPIC:
            topic = self._resolved(asked.destination, asked.topic)
            self.require(login, producer_needs("topic", topic))
            return
        self.require(login, producer_needs("queue", asked.destination))
        self._check_creation(login, asked.destination)

    def _check_creation(self, login: Login, queue: str) -> None:
        """A queue that its first use makes."""
        state = self._engine.state
        if state.settings.is_auto and queue not in state.queues and queue not in state.topics:
            self.require(login, [(_A.CREATE, "queue", queue)])

    def _resolved(self, name: str, string: str) -> str:
        """The topic that is meant; of one that cannot be told, what was said, so that its refusal
        tells nobody which topics there are."""
        try:
            return self._engine.state.space.publication(name, string)[1]
        except HmsError:
            return "/".join(part for part in (name, string) if part)

    def _open_consumer(self, login: Login, asked: wire.OpenConsumer, _: int) -> None:
        if asked.kind == wire.TOPIC:
            self._subscribe(login, asked)
        else:
            if not asked.destination.startswith(TEMPORARY):
                self.require(login, [(_A.CONSUME, "queue", asked.destination)])
            self._check_creation(login, asked.destination)
        if asked.listener:
            self.require(login, [(_A.CALL, "service", asked.listener)])

    def _subscribe(self, login: Login, asked: wire.OpenConsumer) -> None:
        if asked.destination.startswith(TEMPORARY):
            return
        try:
            pattern = self._engine.state.space.wanted(asked.destination, asked.topic, asked.scheme)[
                1
            ]
            said = pattern.text
        except HmsError:
            said = "/".join(part for part in (asked.destination, asked.topic) if part)
            pattern = None
        actions = [_A.SUBSCRIBE, *([_A.SUBSCRIBE_DURABLE] if asked.durable else [])]
        for action in actions:
            if not _reaches(login, action, pattern, said):
                raise _refusal(login, action, f"topic:{said}")
        if asked.is_shared:
            name = asked.durable or asked.name
            self.require(login, [(_A.CONSUME, "subscription", name)])
        if asked.queue:
            self.require(login, producer_needs("queue", asked.queue))
        if asked.durable and pattern is not None:
            found = self._engine.state.space.named(pattern, asked.durable, is_durable=True)
            if found is not None and not found.definition.is_configured:
                self._check_owner(login, found.definition.owner, asked.durable)

    def _check_owner(self, login: Login, owner: str, name: str) -> None:
        if owner != login.user:
            self.require(login, [(_A.CONFIGURE, "subscription", name)])

    def _unsubscribe(self, login: Login, asked: wire.Unsubscribe, _: int) -> None:
        owner = None
        try:
            space = self._engine.state.space
            pattern = space.wanted(asked.destination, asked.topic, asked.scheme)[1]
            found = space.named(pattern, asked.name, is_durable=True)
            owner = found.definition.owner if found is not None else None
        except HmsError:
            pass
        if owner != login.user:
            self.require(login, [(_A.CONFIGURE, "subscription", asked.name)])

    def _create_subscription(self, login: Login, asked: Order, _: int) -> None:
        """It delivers into a queue, so its owner needs to subscribe here and to produce there."""
        given: Any = asked.arguments
        topic = self._resolved(given.topic, "")
        configure = (_A.CONFIGURE, "topic", topic)
        self.require(login, [configure, *producer_needs("queue", given.queue)])
        try:
            pattern = self._engine.state.space.wanted(given.topic, "", given.scheme)[1]
        except HmsError:
            pattern = None
        if not _reaches(login, _A.SUBSCRIBE, pattern, topic):
            raise _refusal(login, _A.SUBSCRIBE, f"topic:{topic}")

    def _clear_retained(self, login: Login, asked: Order, _: int) -> None:
        """A pattern clears many topics: a permission has to cover all that it can match."""
        given: Any = asked.arguments
        if given.pattern:
            wanted = pattern_of(given.pattern, given.scheme)
            if not login.rights.covers_all(_A.PURGE, wanted):
                raise _refusal(login, _A.PURGE, f"topic:{given.pattern}")
        else:
            self.require(login, [(_A.PURGE, "topic", self._resolved(given.name, ""))])

    def _messages(self, login: Login, asked: Order, _: int) -> None:
        """Of the place where they wait; what is retained is its topics'."""
        given: Any = asked.arguments
        self.require(login, [(asked.command.action, *self._whose(given.place))])

    def _whose(self, place: str) -> tuple[str, str]:
        """Kind and name of what a permission has to be for, as the engine finds it; what is
        retained is its topics'."""
        kind, _colon, name = place.partition(":")
        if kind == "retained":
            return "topic", name.partition("/#")[0] or "#"
        if kind == "subscription":
            return kind, subscription_name(self._engine.state, name)
        return kind, name

    def _browse(self, login: Login, asked: wire.Browse, _: int) -> None:
        whose = self._whose(asked.place) if asked.place else ("queue", asked.destination)
        self.require(login, [(_A.BROWSE, *whose)])

    def _alter_messages(self, login: Login, asked: Order, connection: int) -> None:
        """What is imported comes to another place, as if it were sent there."""
        given: Any = asked.arguments
        self._messages(login, asked, connection)
        if given.to:
            kind, name = self._whose(given.to)
            if kind == "topic":
                self.require(login, [(_A.PUBLISH, kind, name), (_A.RETAIN, kind, name)])
            elif kind == "subscription":
                self.require(login, [(_A.CONFIGURE, kind, name)])
            else:
                self.require(login, producer_needs("queue", name))

    def _move_messages(self, login: Login, asked: Order, connection: int) -> None:
        """Who moves or copies sends, too; in the name of others only the engine knows of whom."""
        given: Any = asked.arguments
        self._messages(login, asked, connection)
        if not given.is_from_sender:
            self.require(login, producer_needs("queue", given.to.removeprefix("queue:")))

    def _return_letters(self, login: Login, asked: Order, connection: int) -> None:
        """Where letters came from is known only when they go there: to send back into any queue
        needs as much for all of them, unless it is done in the name of their senders."""
        given: Any = asked.arguments
        self._messages(login, asked, connection)
        if not given.is_from_sender:
            name = given.to.removeprefix("queue:") or "*"
            self.require(login, producer_needs("queue", name))

    def _schedule(self, login: Login, head: Any, connection: int) -> None:
        """A user who replaces what another one has scheduled needs to be able to cancel it."""
        state, asked = self._engine.state, head[0]
        self._check_granted(connection, asked.producer)
        kind, name = state.producer(state.connection(connection), asked.producer).key
        self.require(login, [(_A.SCHEDULE, kind, name)])
        known = None if state.schedules is None else state.schedules.by_name.get(asked.name)
        if known is not None and asked.may_replace and known.plan.owner != login.user:
            self.require(login, [(_A.SCHEDULE, *_place_of(known.plan))])

    def _list_schedules(self, login: Login, asked: Order, _: int) -> None:
        """A selector asks what their messages say, as a browser does."""
        given: Any = asked.arguments
        self._check_row(login, asked.command, "queue")
        if given.selector:
            self.require(login, [(_A.BROWSE, "queue", "*")])

    def _named_schedule(self, login: Login, asked: Order, _: int) -> None:
        """Of one that is not there, who may do so anywhere is told that it is not."""
        given: Any = asked.arguments
        schedules, action = self._engine.state.schedules, asked.command.action
        known = None if schedules is None else schedules.by_name.get(given.name)
        if known is not None:
            self.require(login, [(action, *_place_of(known.plan))])
        elif not login.rights.allows_any(action, "queue"):
            raise _refusal(login, action, "queue:*")

    def _send_file(self, login: Login, _asked: Any, _: int) -> None:
        rights = login.rights
        if not (rights.allows_any(_A.PRODUCE, "queue") or rights.allows_any(_A.PUBLISH, "topic")):
            raise _refusal(login, _A.PRODUCE, "queue:*")

    def _read_file(self, login: Login, asked: wire.ReadFile, connection: int) -> None:
        """Its sender, each client that has a message that names it, or exports one."""
        there = self._engine.state.connection(connection)
        key = connection, asked.file
        if asked.file.startswith(f"{there.uid:016x}-") or key in self._files:
            return
        if asked.file not in there.files_shown and not any(
            asked.file == _file_of(m) for c in there.consumers.values() for m in c.out.values()
        ):
            raise _refusal(login, _A.CONSUME, f"file:{asked.file}")
        if len(self._files) >= FILES_KEPT_MAX:
            del self._files[next(iter(self._files))]
        self._files[key] = None

    def _notice(self, login: Login, head: Any, _: int) -> None:
        self.require(login, [(_A.NOTIFY, "client", head[0].client_name or "*")])

    def _end_branch(self, login: Login, asked: Any, connection: int) -> None:
        """A branch belongs to the clients that worked in it; others end it as a recovery does."""
        self.require(login, [(_A.TRANSACT, "node", self._node)])
        state = self._engine.state
        branch = state.branches.by_xid.get(asked.xid)
        if branch is None or state.connection(connection).uid in branch.uids:
            return
        if self._engine.branches.is_coordinator(connection, asked.xid):
            return
        if login.user != NODE_USER:
            self.require(login, [(_A.RECOVER, "transaction", asked.xid.hex())])


def consumer_needs(consumer: Consumer) -> Iterator[Need]:
    """What a consumer that is open needs, beside the topic of a subscription."""
    place = consumer.place
    if isinstance(place, Queue):
        if not place.name.startswith(TEMPORARY):
            yield _A.CONSUME, "queue", place.name
    elif place.is_shared:
        yield _A.CONSUME, "subscription", place.name
    if consumer.listener:
        yield _A.CALL, "service", consumer.listener


def producer_needs(kind: str, name: str) -> list[Need]:
    """What a producer needs at a queue or topic; to a temporary one all that know it may send."""
    if name.startswith(TEMPORARY):
        return []
    return [(_A.PUBLISH if kind == "topic" else _A.PRODUCE, kind, name)]


def needs_of(producer: Producer) -> list[Need]:
    """What a producer that is open needs."""
    return producer_needs(*producer.key)


def _reaches(login: Login, action: Action, pattern: Pattern | None, said: str) -> bool:
    if pattern is None:
        return login.rights.allows(action, "topic", said)
    return login.reaches(action, pattern)


def _place_of(plan: Plan) -> tuple[str, str]:
    """The kind and name of what a schedule sends to."""
    return plan.kind, plan.topic if plan.kind == "topic" else plan.destination


def _file_of(message: StoredMessage) -> object:
    return message.head().node.get(NODE_FILE) if message.kind == KIND_FILE else None


def _may_view(
    allows: Callable[[Action, str, str], bool], kind: str, row: Mapping[str, Any]
) -> bool:
    if "destination" in row:  # a schedule
        kind, _, name = str(row["destination"]).partition(":")
        return allows(_A.VIEW, kind, name)
    if kind in ("node", "transaction"):
        return True
    name = row.get(
        "topic" if kind == "topic" and "topic" in row else "name", row.get("client_id", "")
    )
    return allows(_A.VIEW, kind, str(name))


def _refusal(login: Login, action: Action, resource: str) -> NotAuthorized:
    return NotAuthorized(user=login.user, action=str(action), resource=resource)
