"""The table of commands: everything that a client, a door, an operator or a timer can ask.

What follows from a command is derived from its row: whether it is repeated after a lost connection,
which permission it needs, what it is called in an audit, and its line in the protocol reference. A
frame is looked up by its kind, a request by its structure, an operation by its verb.
"""

import enum
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from hms.errors.catalogue import NotSupported
from hms.wire import branch_requests as xa
from hms.wire import operations as ops
from hms.wire import structures as wire
from hms.wire.frames import Kind

__all__ = [
    "COMMANDS",
    "OF_KIND",
    "OPERATIONS",
    "Action",
    "Command",
    "Order",
    "Repeat",
    "command_of",
    "concerns",
    "decode_request",
    "operation_of",
    "order",
]


class Action(enum.StrEnum):
    """What a permission allows. OWN: a login suffices, the command concerns what it opened."""

    OWN = ""
    CONNECT = "connect"
    PRODUCE = "produce"
    PUBLISH = "publish"
    RETAIN = "retain"
    CONSUME = "consume"
    SUBSCRIBE = "subscribe"
    SUBSCRIBE_DURABLE = "subscribe-durable"
    BROWSE = "browse"
    TEMPORARY = "temporary"
    CREATE = "create"
    SCHEDULE = "schedule"
    CALL = "call"
    ADVERTISE = "advertise"
    NOTIFY = "notify"
    TRANSACT = "transact"
    RECOVER = "recover"
    RESOLVE = "resolve"
    VIEW = "view"
    CONFIGURE = "configure"
    PURGE = "purge"
    MANAGE = "manage"
    OPERATE = "operate"
    SECURE = "secure"
    AUDIT = "audit"
    IMPERSONATE = "impersonate"


class Repeat(enum.StrEnum):
    """What becomes of a command whose answer was lost with its connection."""

    READ = "read"
    """It changes nothing: it is asked again."""
    SAME = "same"
    """Twice has the effect of once: it is said again."""
    NUMBERED = "numbered"
    """It has a number by which the node knows it again, in the same log only."""
    ONCE = "once"
    """It is not repeated: ConnectionLost, and its effect is not known."""
    NEVER = "never"
    """It has no answer, or is over with its connection."""


class Command(NamedTuple):
    """A row. name: as the wire or an operator says it; structure: what it carries, None for frames
    that are packed by hand or carry nothing; resource: what it concerns, such as "queue:{name}",
    a field of the structure in braces, "" for what the connection has open."""

    name: str
    kind: Kind
    structure: type[Any] | None
    action: Action
    resource: str
    repeat: Repeat

    def resource_of(self, command: Any) -> str:
        """What this instance of the command concerns."""
        return self.resource.format_map(_Fields(command)) if "{" in self.resource else self.resource


class _Fields:
    """The fields of a structure, as str.format_map() asks for them."""

    def __init__(self, command: Any) -> None:
        self._command = command

    def __getitem__(self, name: str) -> Any:
        return getattr(self._command, name)


def _frame(
    kind: Kind, structure: type[Any] | None, action: Action, resource: str, repeat: Repeat
) -> Command:
    return Command(kind.name, kind, structure, action, resource, repeat)


def _request(structure: type[Any], action: Action, resource: str, repeat: Repeat) -> Command:
    return Command(structure.__name__, Kind.REQUEST, structure, action, resource, repeat)


def _operation(
    verb: str, structure: type[ops.Operation], action: Action, resource: str, repeat: Repeat
) -> Command:
    return Command(verb, Kind.REQUEST, structure, action, resource, repeat)


_A, _R = Action, Repeat

_FRAMES = (
    _frame(Kind.HELLO, wire.Hello, _A.CONNECT, "listener", _R.SAME),
    _frame(Kind.AUTH, wire.Auth, _A.CONNECT, "listener", _R.NEVER),
    _frame(Kind.HEARTBEAT, None, _A.OWN, "", _R.NEVER),
    _frame(Kind.GOODBYE, None, _A.OWN, "", _R.NEVER),
    _frame(Kind.SEND, None, _A.PRODUCE, "producer", _R.NUMBERED),
    _frame(Kind.SETTLE, None, _A.OWN, "", _R.NEVER),
    _frame(Kind.SCHEDULE, wire.ScheduleHead, _A.SCHEDULE, "producer", _R.NUMBERED),
    _frame(Kind.FILE, wire.FileBlock, _A.PRODUCE, "file", _R.SAME),
    _frame(Kind.CALL, wire.CallHead, _A.CALL, "service:{service}", _R.ONCE),
    _frame(Kind.TALK, wire.TalkHead, _A.OWN, "", _R.NEVER),
    _frame(Kind.RESULT, wire.ResultHead, _A.OWN, "", _R.NEVER),
    _frame(Kind.NOTICE, wire.NoticeHead, _A.NOTIFY, "client:{client_name}", _R.ONCE),
)

_REQUESTS = (
    _request(wire.OpenSession, _A.OWN, "", _R.SAME),
    _request(wire.CloseSession, _A.OWN, "", _R.SAME),
    _request(wire.OpenProducer, _A.PRODUCE, "{kind}:{destination}", _R.SAME),
    _request(wire.CloseProducer, _A.OWN, "", _R.SAME),
    _request(wire.CreateTemporary, _A.TEMPORARY, "node", _R.ONCE),
    _request(wire.DeleteTemporary, _A.TEMPORARY, "node", _R.ONCE),
    _request(wire.OpenConsumer, _A.CONSUME, "{kind}:{destination}", _R.SAME),
    _request(wire.RequestRetained, _A.OWN, "", _R.ONCE),
    _request(wire.Poll, _A.OWN, "", _R.SAME),
    _request(wire.CloseConsumer, _A.OWN, "", _R.SAME),
    _request(wire.Unsubscribe, _A.CONFIGURE, "subscription:{name}", _R.SAME),
    _request(wire.Commit, _A.OWN, "", _R.NUMBERED),
    _request(wire.Rollback, _A.OWN, "", _R.SAME),
    _request(wire.Recover, _A.OWN, "", _R.SAME),
    _request(wire.Browse, _A.BROWSE, "queue:{destination}", _R.READ),
    _request(wire.Advertise, _A.ADVERTISE, "service:{service}", _R.SAME),
    _request(wire.Unadvertise, _A.OWN, "", _R.SAME),
    _request(wire.AskOutcome, _A.OWN, "", _R.SAME),
    _request(wire.Watch, _A.VIEW, "{kind}:{destination}", _R.SAME),
    _request(wire.OpenFile, _A.PRODUCE, "file", _R.SAME),
    _request(wire.CloseFile, _A.PRODUCE, "file", _R.SAME),
    _request(wire.ReadFile, _A.CONSUME, "file:{file}", _R.READ),
    _request(xa.XaStart, _A.TRANSACT, "node", _R.ONCE),
    _request(xa.XaEnd, _A.TRANSACT, "node", _R.ONCE),
    _request(xa.XaTake, _A.TRANSACT, "node", _R.ONCE),
    _request(xa.XaPrepare, _A.TRANSACT, "node", _R.SAME),
    _request(xa.XaCommit, _A.TRANSACT, "node", _R.SAME),
    _request(xa.XaRollback, _A.TRANSACT, "node", _R.SAME),
    _request(xa.XaForget, _A.TRANSACT, "node", _R.SAME),
    _request(xa.XaRecover, _A.RECOVER, "transaction", _R.READ),
    _request(xa.BeginGlobal, _A.TRANSACT, "node", _R.SAME),
    _request(xa.Decide, _A.TRANSACT, "node", _R.SAME),
    _request(xa.EndGlobal, _A.TRANSACT, "node", _R.SAME),
    _request(xa.AskDecision, _A.TRANSACT, "node", _R.READ),
    _request(xa.NoteDecision, _A.TRANSACT, "node", _R.SAME),
    _request(xa.ForgetDecision, _A.TRANSACT, "node", _R.SAME),
    _request(xa.ListDecisions, _A.RECOVER, "transaction", _R.READ),
    _request(xa.ListActive, _A.RECOVER, "transaction", _R.READ),
)


def _of_destinations(kind: str) -> Iterator[Command]:
    one = f"{kind}:{{name}}"
    yield _operation(f"{kind}.list", ops.ListDestinations, _A.VIEW, kind, _R.READ)
    yield _operation(f"{kind}.show", ops.NameOne, _A.VIEW, one, _R.READ)
    yield _operation(f"{kind}.create", ops.CreateDestination, _A.CONFIGURE, one, _R.ONCE)
    yield _operation(f"{kind}.alter", ops.AlterDestination, _A.CONFIGURE, one, _R.ONCE)
    yield _operation(f"{kind}.delete", ops.DeleteDestination, _A.CONFIGURE, one, _R.ONCE)
    yield _operation(f"{kind}.pause", ops.PauseDestination, _A.CONFIGURE, one, _R.ONCE)
    yield _operation(f"{kind}.resume", ops.PauseDestination, _A.CONFIGURE, one, _R.ONCE)
    yield _operation(f"{kind}.purge", ops.NameOne, _A.PURGE, one, _R.ONCE)


_OPERATIONS = (
    _operation("status", ops.Nothing, _A.VIEW, "node", _R.READ),
    _operation("metrics.show", ops.ShowMetrics, _A.VIEW, "node", _R.READ),
    _operation("alert.list", ops.Nothing, _A.VIEW, "node", _R.READ),
    _operation("log.level", ops.SetLogLevel, _A.OPERATE, "node", _R.ONCE),
    _operation("log.payloads", ops.SetLogPayloads, _A.OPERATE, "node", _R.ONCE),
    _operation("replica.add", ops.AddReplica, _A.OPERATE, "node", _R.ONCE),
    _operation("replica.remove", ops.RemoveReplica, _A.OPERATE, "node", _R.ONCE),
    _operation("replica.switchover", ops.SwitchOver, _A.OPERATE, "node", _R.ONCE),
    *_of_destinations("queue"),
    *_of_destinations("topic"),
    _operation("topic.tree", ops.ShowTopics, _A.VIEW, "topic", _R.READ),
    _operation("topic.clear_retained", ops.ClearRetained, _A.PURGE, "topic:{name}", _R.ONCE),
    _operation("destination.lookup.show", ops.NameOne, _A.OWN, "", _R.READ),
    _operation("subscription.list", ops.Nothing, _A.VIEW, "subscription", _R.READ),
    _operation(
        "subscription.create", ops.CreateSubscription, _A.CONFIGURE, "topic:{topic}", _R.ONCE
    ),
    _operation(
        "subscription.delete", ops.DeleteSubscription, _A.CONFIGURE, "subscription:{name}", _R.ONCE
    ),
    _operation("message.list", ops.SelectMessages, _A.BROWSE, "{place}", _R.READ),
    _operation("message.view", ops.ViewMessage, _A.BROWSE, "{place}", _R.READ),
    _operation("message.move", ops.MoveMessages, _A.MANAGE, "{place}", _R.ONCE),
    _operation("message.forwarded", ops.ForwardedMessages, _A.BROWSE, "{place}", _R.READ),
    _operation("message.hold", ops.NamePlace, _A.PURGE, "{place}", _R.ONCE),
    _operation("message.release", ops.NamePlace, _A.PURGE, "{place}", _R.ONCE),
    _operation("message.copy", ops.MoveMessages, _A.MANAGE, "{place}", _R.ONCE),
    _operation("message.delete", ops.SelectMessages, _A.PURGE, "{place}", _R.ONCE),
    _operation("message.expire", ops.SelectMessages, _A.PURGE, "{place}", _R.ONCE),
    _operation("message.alter", ops.AlterMessages, _A.PURGE, "{place}", _R.ONCE),
    _operation("dlq.queues", ops.Nothing, _A.VIEW, "queue", _R.READ),
    _operation("dlq.return", ops.ReturnLetters, _A.MANAGE, "{place}", _R.ONCE),
    _operation("client.list", ops.ListClients, _A.VIEW, "client", _R.READ),
    _operation("client.show", ops.NameClient, _A.VIEW, "client:{number}", _R.READ),
    _operation("client.close", ops.CloseClient, _A.OPERATE, "client:{number}", _R.ONCE),
    _operation("client.bans", ops.Nothing, _A.VIEW, "client", _R.READ),
    _operation("client.ban", ops.BanClient, _A.OPERATE, "client:*", _R.ONCE),
    _operation("client.unban", ops.UnbanClient, _A.OPERATE, "client:*", _R.ONCE),
    _operation("security.locked", ops.Nothing, _A.VIEW, "client", _R.READ),
    _operation("security.unlock", ops.UnlockAddress, _A.OPERATE, "client:*", _R.ONCE),
    _operation("security.show", ops.Nothing, _A.SECURE, "user:*", _R.READ),
    _operation("security.reload", ops.Nothing, _A.SECURE, "user:*", _R.SAME),
    _operation("security.diff", ops.Nothing, _A.SECURE, "user:*", _R.READ),
    _operation("login.show", ops.Nothing, _A.OWN, "", _R.READ),
    _operation("user.list", ops.ListNames, _A.SECURE, "user:*", _R.READ),
    _operation("user.show", ops.NameOne, _A.SECURE, "user:{name}", _R.READ),
    _operation("user.enable", ops.NameOne, _A.SECURE, "user:{name}", _R.ONCE),
    _operation("user.disable", ops.NameOne, _A.SECURE, "user:{name}", _R.ONCE),
    _operation("user.logout", ops.NameOne, _A.SECURE, "user:{name}", _R.ONCE),
    _operation("role.list", ops.ListNames, _A.SECURE, "role:*", _R.READ),
    _operation("role.show", ops.NameOne, _A.SECURE, "role:{name}", _R.READ),
    _operation("permission.grant", ops.ChangeGrant, _A.SECURE, "role:{name}", _R.ONCE),
    _operation("permission.revoke", ops.ChangeGrant, _A.SECURE, "role:{name}", _R.ONCE),
    _operation("permission.matrix", ops.WhoMay, _A.SECURE, "user:*", _R.READ),
    _operation("audit.head", ops.Nothing, _A.AUDIT, "node", _R.READ),
    _operation("audit.verify", ops.VerifyAudits, _A.AUDIT, "node", _R.READ),
    _operation("consumer.list", ops.ListOpened, _A.VIEW, "client", _R.READ),
    _operation("producer.list", ops.ListOpened, _A.VIEW, "client", _R.READ),
    _operation("session.list", ops.Nothing, _A.VIEW, "client", _R.READ),
    _operation("schedule.list", ops.ListSchedules, _A.VIEW, "queue", _R.READ),
    _operation("schedule.show", ops.NameOne, _A.VIEW, "queue", _R.READ),
    _operation("schedule.cancel", ops.NameOne, _A.SCHEDULE, "queue", _R.ONCE),
    _operation("transaction.list", ops.Nothing, _A.VIEW, "transaction", _R.READ),
    _operation("transaction.show", ops.NameBranch, _A.VIEW, "transaction", _R.READ),
    _operation("transaction.commit", ops.NameBranch, _A.RESOLVE, "transaction", _R.ONCE),
    _operation("transaction.rollback", ops.NameBranch, _A.RESOLVE, "transaction", _R.ONCE),
    _operation("transaction.forget", ops.NameBranch, _A.RESOLVE, "transaction", _R.ONCE),
    _operation("service.list", ops.Nothing, _A.VIEW, "service", _R.READ),
    _operation("server.list", ops.Nothing, _A.VIEW, "node", _R.READ),
    _operation("server.restart", ops.NameOne, _A.OPERATE, "node", _R.ONCE),
    _operation("server.scale", ops.ScaleServer, _A.OPERATE, "node", _R.ONCE),
    _operation("resource.list", ops.Nothing, _A.TRANSACT, "node", _R.READ),
    _operation("resource.report", ops.ReportResources, _A.RECOVER, "transaction", _R.ONCE),
    _operation("log.seal", ops.Nothing, _A.OPERATE, "node", _R.ONCE),
    _operation("log.erase", ops.EraseLog, _A.OPERATE, "node", _R.ONCE),
    _operation("erasure.begin", ops.BeginErasure, _A.OPERATE, "node", _R.ONCE),
    _operation("erasure.end", ops.EndErasure, _A.OPERATE, "node", _R.ONCE),
    _operation("store.finalize", ops.FinalizeStore, _A.OPERATE, "node", _R.ONCE),
    _operation("backup.create", ops.CreateBackup, _A.OPERATE, "node", _R.ONCE),
    _operation("backup.verify", ops.VerifyBackup, _A.OPERATE, "node", _R.ONCE),
    _operation("cluster.status", ops.Nothing, _A.VIEW, "node", _R.READ),
    _operation("cluster.drain", ops.DrainNode, _A.OPERATE, "node", _R.ONCE),
)

COMMANDS = (*_FRAMES, *_REQUESTS, *_OPERATIONS)
OPERATIONS = {one.name: one for one in _OPERATIONS}
"""By verb."""
OF_KIND = {one.kind: one for one in _FRAMES}
"""The commands that are a kind of frame of their own."""
_OF_STRUCTURE = {one.structure: one for one in _REQUESTS}


def operation_of(verb: str) -> Command:
    """The operation of that verb; NotSupported for one that there is not."""
    found = OPERATIONS.get(verb)
    if found is None:
        known = ", ".join(sorted(OPERATIONS))
        raise NotSupported(feature=f"the command {verb}", instead=f"Known: {known}.")
    return found


class Order(NamedTuple):
    """An operation that somebody asks for: what an Administer carries, read by its row."""

    command: Command
    arguments: ops.Operation


def order(verb: str, arguments: Mapping[str, Any]) -> Order:
    """From a verb and plain arguments; NotSupported, InvalidArgument."""
    command = operation_of(verb)
    assert command.structure is not None
    return Order(command, ops.decode_operation(verb, command.structure, dict(arguments)))


def decode_request(data: bytes | memoryview) -> Any:
    """What a REQUEST asks for: a structure of structures.py, or an Order; ProtocolError,
    NotSupported, InvalidArgument."""
    request = wire.decode_request(data)
    if isinstance(request, wire.Administer):
        return order(request.verb, request.arguments)
    return request


def command_of(kind: Kind, head: Any) -> Command:
    """The row of a frame, given what decode_request() made of a REQUEST."""
    if kind is not Kind.REQUEST:
        return OF_KIND[kind]
    return head.command if isinstance(head, Order) else _OF_STRUCTURE[type(head)]


def concerns(command: Command, head: Any) -> str:
    """The resource of this very command, such as "queue:orders"; "" for what its connection has
    open."""
    return command.resource_of(head.arguments if isinstance(head, Order) else head)
