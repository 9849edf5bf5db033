"""What operators ask and order: the arguments of each operation, typed.

An operation crosses the wire as Administer(verb, arguments), arguments being a map of plain values.
The table that says which verb takes which of these stands in commands.py.
"""

from typing import Annotated, Any, Final

import msgspec

from hms.errors.catalogue import InvalidArgument
from hms.wire.structure_base import U63, Name, Text

__all__ = [
    "AddReplica",
    "AlterDestination",
    "AlterMessages",
    "BanClient",
    "BeginErasure",
    "ChangeGrant",
    "ClearRetained",
    "CloseClient",
    "CreateBackup",
    "CreateDestination",
    "CreateSubscription",
    "DeleteDestination",
    "DeleteSubscription",
    "DrainNode",
    "EndErasure",
    "ForwardedMessages",
    "ListClients",
    "ListDestinations",
    "ListNames",
    "ListOpened",
    "ListSchedules",
    "MoveMessages",
    "NameBranch",
    "NameClient",
    "NameOne",
    "NamePlace",
    "Nothing",
    "Operation",
    "PauseDestination",
    "RemoveReplica",
    "ReportResources",
    "ReturnLetters",
    "ScaleServer",
    "SelectMessages",
    "SetLogLevel",
    "SetLogPayloads",
    "ShowMetrics",
    "ShowTopics",
    "SwitchOver",
    "UnbanClient",
    "UnlockAddress",
    "VerifyAudits",
    "VerifyBackup",
    "ViewMessage",
    "WhoMay",
    "decode_operation",
]

SCHEDULES_LISTED, SCHEDULES_LISTED_MAX = 1000, 10_000
REPORT_BYTES_MAX = 48 << 10
ROWS_MAX = 100_000
NAMES_LISTED, NAMES_LISTED_MAX = 100, 1000
MESSAGES_AT_ONCE = 250
"""So many messages an operation on a place touches under one hold of the lock."""


class Operation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The arguments of an operation."""


class Nothing(Operation, frozen=True):
    """It takes none."""


class NameOne(Operation, frozen=True):
    """name: of a queue, topic, service, server or schedule."""

    name: Text


class CreateDestination(Operation, frozen=True):
    """life: CREATED, until it is deleted, or DYNAMIC, while the node runs; attributes: the keys of
    [hms.queue.NAME] or [hms.topic.NAME] that may be set at run time."""

    name: Text
    life: str = ""
    attributes: dict[str, Any] = {}


class AlterDestination(Operation, frozen=True):
    """attributes: as above; None sets one back to what the configuration says."""

    name: Text
    attributes: dict[str, Any] = {}


class DeleteDestination(Operation, frozen=True):
    """force: also when messages wait, which become dead letters; discard: or are discarded."""

    name: Text
    force: bool = False
    discard: bool = False


class PauseDestination(Operation, frozen=True):
    """what: PRODUCTION, CONSUMPTION or BOTH."""

    name: Text
    what: str = "BOTH"


class ShowTopics(Operation, frozen=True):
    """The topics that a pattern matches, in a scheme of wildcards."""

    pattern: Text = "#"
    scheme: Name = "TOPIC"


class ShowMetrics(Operation, frozen=True):
    """names: with blanks between, of the destinations that get a row of their own, * standing for
    anything; limit: so many rows."""

    names: Text = ""
    limit: Annotated[int, msgspec.Meta(ge=0, le=ROWS_MAX)] = 1000


class ListDestinations(Operation, frozen=True):
    """names: with blanks between, * standing for anything, "" for all; fields: those of each row,
    beside its name, "" for all."""

    names: Text = ""
    fields: Text = ""


class SetLogLevel(Operation, frozen=True):
    """level: DEBUG, INFO, WARNING or ERROR, of the part of the node with that name, "" for all of
    it; seconds: after them it is as configured again, 0: until the node ends."""

    level: Name
    name: Text = ""
    seconds: U63 = 0


class SetLogPayloads(Operation, frozen=True):
    """is_on: whether services that fail log what they were given; seconds: after them it is as
    configured again, 0: until the node ends."""

    is_on: bool
    seconds: U63 = 0


class AddReplica(Operation, frozen=True):
    """The replica of that name, as hms.conf of the primary has it now, counts when it has all."""

    name: Name


class RemoveReplica(Operation, frozen=True):
    """The replica of that name counts no more, until it is added."""

    name: Name


APPLY_S: Final = 60.0
"""So long the replica that is to lead has to apply the log, where it is not said."""


class SwitchOver(Operation, frozen=True):
    """The replica that is to lead, "" for the only other one; drain_s: how long what was begun has
    to end, None: as configured; is_forced: what has not ended by then is cut off; apply_s: how long
    that replica has to apply the log before, None: APPLY_S."""

    to: Name = ""
    is_forced: bool = False
    drain_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] | None = None
    apply_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] | None = None


class ClearRetained(Operation, frozen=True):
    """On the topic of that name, or on those that a pattern matches."""

    name: Text = ""
    pattern: Text = ""
    scheme: Name = "TOPIC"


class CreateSubscription(Operation, frozen=True):
    """A subscription that puts what it takes into a queue; retained: ALL or NEW."""

    name: Text
    topic: Text
    queue: Text
    scheme: Name = ""
    selector: Text = ""
    retained: Name = "ALL"
    correlation_id: Text = ""


class DeleteSubscription(Operation, frozen=True):
    """topic: where, when several have that name."""

    name: Text
    topic: Text = ""


class ListSchedules(Operation, frozen=True):
    """kind: schedule or delayed, both without; destination: such as queue:orders; owner, selector:
    schedules alone, of that user, whose message it chooses."""

    kind: str = ""
    destination: Text = ""
    owner: Text = ""
    selector: Text = ""
    limit: int = SCHEDULES_LISTED


class NameBranch(Operation, frozen=True):
    """xid: packed, in hexadecimal."""

    xid: Text


class DrainNode(Operation, frozen=True):
    """is_on: whether the node is to be emptied, or no longer."""

    is_on: bool = True


class CreateBackup(Operation, frozen=True):
    """to: where an operator puts it, for the audit; the node seals its log for it."""

    to: Text = ""
    base: Text = ""
    is_shipped: bool = False
    """One of a row of them: the next one comes soon."""
    since: U63 = 0
    """All before this offset was shipped; nothing is sealed, and nothing audited, when it is all
    that there is."""
    store: Text = ""
    """The identity of the store of which it was shipped, in hexadecimal."""


class VerifyBackup(Operation, frozen=True):
    """Somebody is to verify this one, for the audit: the node does not read backups."""

    backup: Text


class FinalizeStore(Operation, frozen=True):
    """From now on the newest format is written, which the release before cannot read."""


class BeginErasure(Operation, frozen=True):
    """Somebody is to erase what belongs to a person, for the audit: the orders that do it follow.
    by: user, selector or property, not which; reason: why."""

    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    by: Name = ""


class EndErasure(Operation, frozen=True):
    """What came of it, over all places. begun: the number of its begin in the audit."""

    begun: U63 = 0
    found: U63 = 0
    erased: U63 = 0
    pending: U63 = 0


class EraseLog(Operation, frozen=True):
    """segment: of which a copy lies beside it in which erased messages are blank; ids: which of
    these messages, with blanks between, still wait in it; is_ready: the copy takes its place.
    until: the segments before this one are to leave the log, as soon as what waits in them was told
    again; it is refused when it is not begun soon.
    """

    segment: U63 = 0
    ids: Text = ""
    is_ready: bool = False
    until: U63 = 0


class ScaleServer(Operation, frozen=True):
    """count: how many processes a [server.NAME] is to have."""

    name: Text
    count: int


class ReportResources(Operation, frozen=True):
    """report: what recovery found, as JSON."""

    report: str


class SelectMessages(Operation, frozen=True):
    """Messages of a place: queue:NAME, subscription:NAME[@TOPIC] or retained:PATTERN.

    ids: with blanks between; from_ms, until_ms: when they were sent; state: waiting, of that
    incomplete, delayed, in_flight, or of that prepared; limit: so many at most; is_all: without it
    something has to be chosen; is_dry: count and change nothing; is_atomic: all of it in one
    request and one record, or nothing. One request does a chunk: after and end are what the last
    answer said. properties: whose values a list shows, with blanks between. is_erasure: what was
    chosen is not told by the audit.
    """

    place: Text
    ids: Text = ""
    selector: Text = ""
    from_ms: U63 = 0
    until_ms: U63 = 0
    older_than_ms: U63 = 0
    type: Text = ""
    min_count: U63 = 0
    state: Name = ""
    limit: U63 = 0
    after: U63 = 0
    end: U63 = 0
    is_newest: bool = False
    is_all: bool = False
    is_dry: bool = False
    properties: Text = ""
    is_atomic: bool = False
    is_erasure: bool = False


class NamePlace(Operation, frozen=True):
    """queue:NAME or subscription:NAME[@TOPIC]."""

    place: Text


class MoveMessages(SelectMessages, frozen=True):
    """to: the queue that gets them; is_count_reset: as if they had never been delivered; node: the
    name of another one that has the queue; is_from_sender: each is put as if its sender did it;
    is_order_broken: of a global order too, whose others wait for them no more."""

    to: Text = ""
    is_count_reset: bool = False
    node: Name = ""
    is_from_sender: bool = False
    is_order_broken: bool = False


class ReturnLetters(SelectMessages, frozen=True):
    """Dead letters. to: a queue instead of where they came from; returns_max: those that were sent
    back so often stay; ttl_ms, from now on, 0: forever; node and is_from_sender as of
    MoveMessages."""

    to: Text = ""
    returns_max: U63 = 3
    ttl_ms: U63 = 0
    node: Name = ""
    is_from_sender: bool = False


class ForwardedMessages(Operation, frozen=True):
    """What of a place is on its way to other nodes; of these ids, with blanks between."""

    place: Text
    ids: Text = ""


class AlterMessages(SelectMessages, frozen=True):
    """priority, -1: as it is; ttl_ms, from now on, 0: forever, -1: as it is; deliver_at_ms: not
    before, 0: at once, -1: as it is; is_id_taken: imported messages take the ids that they had, if
    they are to; to: and go to another place, queue:NAME, subscription:NAME[@TOPIC] or retained:#.
    """

    priority: int = -1
    ttl_ms: int = -1
    deliver_at_ms: int = -1
    is_id_taken: bool = False
    to: Text = ""


class ListClients(Operation, frozen=True):
    """after: the number of the last one that is known already."""

    after: U63 = 0


class NameClient(Operation, frozen=True):
    """number: of its connection."""

    number: U63


class CloseClient(Operation, frozen=True):
    """reason: what the client is told."""

    number: U63
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class ListOpened(Operation, frozen=True):
    """Consumers or producers. after: the number of the last client whose ones are known already;
    destination: of this one alone, such as queue:orders."""

    after: U63 = 0
    destination: Text = ""


class BanClient(Operation, frozen=True):
    """by: user, client_id, client_name or address; value: whose, an address may be a network such
    as 10.0.0.0/8; seconds: for so long, 0: until it is ended; reason: what the client is told."""

    by: Name
    value: Text
    seconds: U63 = 0
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class UnbanClient(Operation, frozen=True):
    """by, value: as it was banned."""

    by: Name
    value: Text


class UnlockAddress(Operation, frozen=True):
    """address: as it was locked, or any of its network; 2001:db8::1 or 2001:db8:0:0::/64."""

    address: Text


class ListNames(Operation, frozen=True):
    """Users or roles by name. names: what a name has in it, "" for all; behind: those that come
    after this one; limit: so many."""

    names: Text = ""
    behind: Text = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=NAMES_LISTED_MAX)] = NAMES_LISTED


class ChangeGrant(Operation, frozen=True):
    """name: of the role; permission: such as "produce queue:orders.*"."""

    name: Text
    permission: Text


class WhoMay(Operation, frozen=True):
    """resource: such as queue:orders.*; name: of this user alone, "" for all."""

    resource: Text
    name: Text = ""


class VerifyAudits(Operation, frozen=True):
    """wait_s: so long for what each node has found."""

    wait_s: Annotated[int, msgspec.Meta(ge=1, le=86_400)] = 20


class ViewMessage(Operation, frozen=True):
    """bytes_max: so much of its body is shown."""

    place: Text
    id: Name
    bytes_max: U63 = 64 << 10
    after: U63 = 0
    end: U63 = 0


def decode_operation(verb: str, kind: type[Operation], arguments: dict[str, Any]) -> Operation:
    """The arguments of an operation, or InvalidArgument that names the one that is wrong.

    An argument that is None is one that was not given; keys that the operation does not know are
    the attributes of a destination, where it takes some.
    """
    known = {field.name for field in msgspec.structs.fields(kind)}
    given = {key: value for key, value in arguments.items() if key in known and value is not None}
    rest = {key: value for key, value in arguments.items() if key not in known}
    if "attributes" in known:
        given["attributes"] = rest
    elif rest:
        takes = f"it takes {', '.join(sorted(known))}" if known else "it takes no arguments"
        raise InvalidArgument(what=f"{min(rest)} of {verb}", detail=takes)
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as fault:
        raise _invalid(str(fault)) from fault


def _invalid(said: str) -> InvalidArgument:
    """From "Expected `str`, got `int` - at `$.name`" and "Object missing required field `name`"."""
    text, _, where = said.replace("`", "").partition(" - at $.")
    if where:
        return InvalidArgument(what=where, detail=text[0].lower() + text[1:])
    return InvalidArgument(what=text.rpartition(" ")[2], detail="it is needed")
