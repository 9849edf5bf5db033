"""What requests, replies and calls carry: msgpack arrays that begin with a tag.

One decoder per direction; whatever it cannot read becomes a ProtocolError, also what msgspec lets
through as RecursionError or UnicodeDecodeError.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from hms.errors.catalogue import BY_NUMBER, ProtocolError, UnknownError
from hms.errors.tree import FieldValue, HmsError
from hms.wire.branch_requests import TransactionRequest
from hms.wire.structure_base import U32, U63, U64, MaybeGtrid, Name, Priority, Text, Trace
from hms.wire.structure_base import Tagged as _Request
from hms.wire.structure_base import Wire as _Wire

HEADER_BYTES_MAX = 64 * 1024
"""The most bytes of one msgpack header; bodies are opaque and bounded by the frame."""
INVOKE_BYTES_MAX = HEADER_BYTES_MAX + 8192
"""The same of a header that carries a message's head among its own fields."""
AUTH_BYTES_MAX = 16 * 1024
"""The most bytes of an AUTH, which comes from somebody unknown."""
PROTOCOL = 2
"""Version 2 has logins: HELLO, CHALLENGE, AUTH, WELCOME."""

QUEUE, TOPIC = "queue", "topic"

REQUEST, CALLER_SPEAKS, SERVICE_SPEAKS = 0, 1, 2
"""Modes of a call: a request, or a conversation in which one side has control first."""


class Limits(_Wire, frozen=True):
    """What the node accepts; sent in the WELCOME. Sizes in bytes. prefetch_bytes: a consumer's
    window unless it wants another, prefetch_bytes_max at most; 0: the node counts messages alone.
    bytes_in_flight_max: of SENDs that are not answered, or one SEND; 0: not said.
    transaction_idle_s: after so long without work a local transaction is rolled back, 0 never; a
    client then says what it received in one within a second. takes_why: a SETTLE may say why it
    gives messages back.
    """

    message_bytes_max: int
    frame_bytes_max: int
    frames_in_flight_max: int
    prefetch_max: int
    heartbeat_s: float
    prefetch_bytes: int = 0
    prefetch_bytes_max: int = 0
    bytes_in_flight_max: int = 0
    transaction_idle_s: float = 0
    takes_why: bool = False


class Hello(_Wire, frozen=True):
    """First frame of a connection. secret: drawn at random by the client, 16 to 64 bytes; uid, its
    digest (client_identity.py), names the client for as long as it lives, over reconnects too.
    request_timeout_ms: how long it waits for an answer; 0: not said. spare: where version 1 had a
    password. mechanisms: how it can prove who it is, in AUTH; resume: of an earlier WELCOME;
    protocol: the version that it speaks, 1 when it does not say."""

    uid: U64
    client_id: Name = ""
    user: Name = ""
    spare: Name = ""
    client_name: Name = ""
    library: Name = ""
    is_server: bool = False
    request_timeout_ms: U64 = 0
    secret: bytes = b""
    mechanisms: tuple[Name, ...] = ()
    resume: bytes = b""
    protocol: U32 = 1

    def __repr__(self) -> str:
        """Without what is secret."""
        return f"Hello(uid={self.uid:#x}, client_name={self.client_name!r})"


class Welcome(_Wire, frozen=True):
    """The node's answer to Hello. now_ms: its time, in milliseconds since 1970 UTC; 0 not told;
    members: addresses of other nodes of its cluster that are up; log: which log it writes, the
    same over WARM boots: what was not confirmed is repeated there only; empty not told.
    is_secured: logins are checked; user, roles: of this one; resume: proves it again over a
    reconnect, until resume_ms; outcome_key: signs what this client may ask about later. epoch: of
    the primary of a log with copies, granted by its arbiter and so never less than before; 0 where
    there are none. replicas: addresses of all copies, where this log may be found. idempotent:
    services that may run twice. restored_from: the backup that the store was restored from, and the
    moment; restored_below: the node gave its ids below that before then, 0 for never restored."""

    connection: int
    node: str
    node_uid: U64
    limits: Limits
    version: str = ""
    now_ms: U64 = 0
    members: Sequence[str] = ()
    log: bytes = b""
    is_secured: bool = False
    user: str = ""
    roles: Sequence[str] = ()
    resume: bytes = b""
    resume_ms: U64 = 0
    outcome_key: bytes = b""
    epoch: U64 = 0
    replicas: Sequence[str] = ()
    idempotent: Sequence[str] = ()
    restored_from: Name = ""
    restored_below: U64 = 0

    def __repr__(self) -> str:
        """Without what is secret."""
        return f"Welcome(connection={self.connection}, node={self.node!r}, user={self.user!r})"


class Challenge(_Wire, frozen=True):
    """The answer of a secured node to a HELLO that proved nothing: say who you are, in one of these
    ways. nonce: random bytes for mechanisms that sign something. epoch: as in Welcome."""

    mechanisms: Sequence[str]
    node: str = ""
    is_secured: bool = True
    nonce: bytes = b""
    epoch: U64 = 0


class Auth(_Wire, frozen=True):
    """AUTH to the node: the answer to a Challenge. response: the password or token; domain: the
    password of the domain, where one is given."""

    mechanism: Name
    user: Name = ""
    response: bytes = b""
    domain: bytes = b""

    def __repr__(self) -> str:
        """Without what is secret."""
        return f"Auth(mechanism={self.mechanism!r}, user={self.user!r})"


class OpenSession(_Request, frozen=True):
    """ack_mode: 0 AUTO, 1 DUPS_OK, 2 CLIENT, 3 NONE. uid and commits name the session's
    transactions over a reconnect. is_xa: it can work in branches; xid: of the one in which it
    worked when its connection was lost, and which it has not left yet."""

    session: U32
    ack_mode: U32 = 0
    is_transacted: bool = False
    is_asynchronous: bool = False
    is_xa: bool = False
    xid: bytes = b""


class CloseSession(_Request, frozen=True):
    """What the application saw was settled before; the rest comes back. is_doubtful: somebody may
    still ask what became of its sends."""

    session: U32
    is_doubtful: bool = False


class OpenProducer(_Request, frozen=True):
    """Sequence numbers of a producer continue over a reconnect of the same client. topic: a topic
    string, alone or behind that of the topic object `destination`; the reply has the whole.
    sent_before: the last number that was used, when it is opened again: if the node has forgotten
    the producer, what comes again up to it is in doubt."""

    producer: U32
    session: U32
    kind: Name
    destination: Name
    name: Name = ""
    topic: Text = ""
    sent_before: U64 = 0


class CloseProducer(_Request, frozen=True):
    """Its numbering is forgotten, unless somebody may still ask what became of its sends."""

    producer: U32
    is_doubtful: bool = False


class CreateTemporary(_Request, frozen=True):
    """A queue or topic that lives as long as this connection, and from which only it receives; the
    reply has its name."""

    kind: Name


class DeleteTemporary(_Request, frozen=True):
    """End a temporary destination before its connection ends."""

    kind: Name
    name: Name


class OpenConsumer(_Request, frozen=True):
    """kind: queue or topic. durable: name of the durable subscription. listener: the service that
    is called for every message; credit is then the node's business. is_shared: other consumers may
    share the subscription `durable`, or `name` when it is not durable. topic: as of OpenProducer,
    with wildcards; scheme: TOPIC or CHARACTER; retained: ALL, NEW or REQUEST; life_ms: of a durable
    subscription, 0 for ever; queue: where what it takes is put, with correlation_id, instead of
    coming to the consumer; credit_bytes: as credit, of heads and bodies, 0 any. priority: who has
    a higher one, and room, gets messages first. The reply of a topic's has its whole topic and its
    life."""

    consumer: U32
    session: U32
    kind: Name
    destination: Name
    credit: U32
    name: Name = ""
    selector: Text = ""
    durable: Name = ""
    is_no_local: bool = False
    listener: Name = ""
    is_shared: bool = False
    redelivery_delay_ms: U32 = 0
    topic: Text = ""
    scheme: Name = ""
    retained: Name = ""
    life_ms: U64 = 0
    queue: Name = ""
    correlation_id: Name = ""
    credit_bytes: U32 = 0
    priority: Priority = 0


class RequestRetained(_Request, frozen=True):
    """Give this consumer of a topic what is retained now; the reply says how many."""

    consumer: U32


class Poll(_Request, frozen=True):
    """Deliver to this consumer what can be delivered; answered behind all of that, so a consumer
    that has nothing when the answer comes is told that nothing waits for it."""

    consumer: U32


class CloseConsumer(_Request, frozen=True):
    """What the application saw was settled before; the rest comes back."""

    consumer: U32


class Unsubscribe(_Request, frozen=True):
    """End a durable subscription; topic and scheme as they were when it was opened."""

    destination: Name
    name: Name
    topic: Text = ""
    scheme: Name = ""


class Commit(_Request, frozen=True):
    """number counts the session's commits from 1, so that a repeated one is recognised."""

    session: U32
    number: U32


class Rollback(_Request, frozen=True):
    """End the transaction without effect. why: what its listener raised, for dead letters."""

    session: U32
    why: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class Recover(_Request, frozen=True):
    """Begin again with the oldest unacknowledged message."""

    session: U32


class Browse(_Request, frozen=True):
    """A page of waiting messages: answered by BROWSED. after: the position the last page ended at,
    0 to begin. is_in_flight: those at consumers too, flagged in their rows. place: what an
    operator exports, not a destination: queue:NAME, subscription:NAME[@TOPIC] or retained:PATTERN,
    as it arrived, delayed ones too."""

    destination: Name
    selector: Text = ""
    is_oldest_first: bool = False
    after: U64 = 0
    count_max: U32 = 100
    is_in_flight: bool = False
    place: Text = ""


class Advertise(_Request, frozen=True):
    """This connection runs the service from now on. signature: what it takes, and whether it is a
    conversation; servers of different names must agree in it. places: so many calls of all its
    services it runs at once."""

    service: Name
    signature: Name = ""
    places: int = 1


class Unadvertise(_Request, frozen=True):
    """This connection runs the service no more. is_leaving: as its process ends, which the node may
    start again."""

    service: Name
    is_leaving: bool = False


class AskOutcome(_Request, frozen=True):
    """What became of a send or commit in doubt, by its token: {"outcome": "STORED" (with "first",
    the first message id, and "count"), "WITHDRAWN", "COMMITTED", "ROLLED_BACK" or "FORGOTTEN"}. The
    answer is final."""

    token: Text


class Watch(_Request, frozen=True):
    """Tell this connection by an Event when the destination gets its first consumer, or loses its
    last; the reply says whether there is one now."""

    kind: Name
    destination: Name


class OpenFile(_Request, frozen=True):
    """A file comes, or goes on to come after a lost connection: handle is the client's own number
    for it. The reply says from which offset on."""

    handle: U32
    size_bytes: U64


class CloseFile(_Request, frozen=True):
    """All of a file has come; the reply, once it is synced, has the node's name for it, and where
    the node keeps it."""

    handle: U32
    size_bytes: U64
    sha256: Name


class ReadFile(_Request, frozen=True):
    """Bytes of a file that a message names; fewer at its end."""

    file: Name
    offset: U64
    size_bytes: U32


class Administer(_Request, frozen=True):
    """An operator's command, such as ("queue.list", {}); the reply carries plain data."""

    verb: Name
    arguments: dict[str, str | int | float | bool | None] = msgspec.field(default_factory=dict)


Request = (
    OpenSession
    | CloseSession
    | OpenProducer
    | CloseProducer
    | CreateTemporary
    | DeleteTemporary
    | OpenConsumer
    | RequestRetained
    | Poll
    | CloseConsumer
    | Unsubscribe
    | Commit
    | Rollback
    | Recover
    | Browse
    | Advertise
    | Unadvertise
    | Watch
    | AskOutcome
    | Administer
    | TransactionRequest
    | OpenFile
    | CloseFile
    | ReadFile
)


class ErrorReply(_Wire, frozen=True):
    """An error of the catalogue."""

    number: int
    fields: dict[str, FieldValue] = msgspec.field(default_factory=dict)


class FileBlock(_Wire, frozen=True):
    """FILE to the node, with bytes of a file that is open; answered by a REPLY or an ERROR."""

    handle: U32
    offset: U64


class ScheduleHead(_Wire, frozen=True):
    """SCHEDULE to the node, with a pack of one message: send it again and again; answered by a
    REPLY or an ERROR. name: the schedule's; either every_ms or cron, in time_zone; first_ms: not
    before; until_ms, count_max 0: without end; missed: what becomes of occurrences that were due
    while the node was down, SKIP, ONE or ALL; may_replace: another one of that name ends; request,
    sequence: a handle of its own and a number from 1, by which a repeated one is known."""

    producer: U32
    name: Name
    every_ms: U64 = 0
    cron: Name = ""
    time_zone: Name = "UTC"
    first_ms: U64 = 0
    until_ms: U64 = 0
    count_max: U32 = 0
    missed: Name = "ONE"
    is_persistent: bool = True
    may_replace: bool = False
    request: U32 = 0
    sequence: U63 = 0


class CallHead(_Wire, frozen=True):
    """CALL to the node: run a service. kind: the data's kind, as of a message body (0 bytes, 1
    text, 2 map, 6 none). timeout_ms 0: as the service or the node has it. may_wait: else it is
    refused when no server is free. mode: 0 a request, 1 a conversation in which the caller has
    control, 2 one in which the service has."""

    service: Name
    timeout_ms: U64
    kind: int = 0
    is_reply_wanted: bool = True
    may_wait: bool = True
    mode: int = 0
    transaction: MaybeGtrid = b""
    """The gtrid of the global transaction in which the caller works."""
    trace: Trace = ""
    """traceparent and tracestate of W3C Trace Context, with a blank between."""


class InvokeHead(_Wire, frozen=True):
    """INVOKE to a server: call is the node's number of it. For a listener's message `delivered`
    holds its row, `head` its head, `destination` where it waited; the data is its body."""

    service: Name
    call: U64
    deadline_ms: U64
    kind: int = 0
    is_message: bool = False
    destination_kind: str = ""
    destination: str = ""
    delivered: bytes = b""
    head: bytes = b""
    client: U64 = 0
    mode: int = 0
    transaction: bytes = b""
    """As of the CALL."""
    is_autotran: bool = False
    """Outside a transaction it begins one."""
    trace: str = ""
    """As of the CALL."""
    user: str = ""
    """Who called, as the node has proved it; empty on an open node, and for a listener."""


class ResultHead(_Wire, frozen=True):
    """RESULT from a server and ANSWER to the caller. rval: 2 TPSUCCESS, 1 TPFAIL. Only in a RESULT
    stand: elapsed_us, how long the service ran; forward, the service that goes on with the data;
    verdict on a listener's message, 1 rejected, 2 to be tried again after delay_ms."""

    call: U64
    rval: int
    rcode: int = 0
    kind: int = 0
    error_number: int = 0
    error_fields: dict[str, FieldValue] = msgspec.field(default_factory=dict)
    elapsed_us: U64 = 0
    forward: Name = ""
    verdict: int = 0
    delay_ms: U64 = 0
    branches: tuple[bytes, ...] = ()
    """What the services left prepared in the caller's transaction, packed by tpmon.xa.decisions."""
    reason: Name = ""
    """Of a message that was rejected: a reason of dead letters."""


class TalkHead(_Wire, frozen=True):
    """TALK, both ways, of a conversation. call: between client and node the correlation of its
    CALL, between server and node the node's number of it. what: 0 data, 1 room for count more, 2
    disconnected. gives_control: the other side may speak now."""

    call: U64
    what: int = 0
    kind: int = 6
    gives_control: bool = False
    count: U32 = 0
    is_from_server: bool = False


class NoticeHead(_Wire, frozen=True):
    """NOTICE: unsolicited data. what: 1 posted, 2 broadcast, 3 for one client. To the node: for
    whom; empty is everybody. From the node: client is who sent it."""

    what: int
    kind: int = 6
    client: U64 = 0
    node: Name = ""
    user: Name = ""
    client_name: Name = ""


class Event(_Wire, frozen=True):
    """Something the node tells unasked: what is "consumer_closed", "connection_closed", or of a
    watched destination "consumer_ready" or "consumer_not_ready". Before another replica leads:
    "draining", nothing new begins; "drained", what is not answered was not taken."""

    what: str
    consumer: int = 0
    error_number: int = 0
    error_fields: dict[str, FieldValue] = msgspec.field(default_factory=dict)
    kind: Name = ""
    destination: Name = ""


_T = TypeVar("_T")
_encoder = msgspec.msgpack.Encoder()
_request_decoder = msgspec.msgpack.Decoder(Request)
_LENGTH = struct.Struct("<I")


encode: Callable[[_Wire | dict[str, Any] | list[Any] | None], bytes] = _encoder.encode
"""A structure, or plain data of a reply, as msgpack."""


def decode_request(data: bytes | memoryview) -> Request:
    """A request, or ProtocolError."""
    request: Request = _checked(_request_decoder, data)
    return request


def decode(data: bytes | memoryview, kind: type[_T]) -> _T:
    """A structure of the given kind, or ProtocolError."""
    return _checked(_decoder(kind), data)


def decode_auth(data: bytes | memoryview) -> Auth:
    """An AUTH, or ProtocolError."""
    return _checked(_decoder(Auth), data, AUTH_BYTES_MAX)


def decode_reply(data: bytes | memoryview) -> Any:
    """The plain data of a REPLY. The node is trusted more than a client, its frames bounded."""
    try:
        return msgspec.msgpack.decode(data) if data else None
    except Exception as fault:
        raise ProtocolError(detail=f"a reply that cannot be read: {fault}") from fault


def encode_with_body(head: _Wire, body: bytes) -> bytes:
    """A msgpack header, its length before it, and an opaque body behind it."""
    encoded = _encoder.encode(head)
    return b"".join((_LENGTH.pack(len(encoded)), encoded, body))


def decode_with_body(data: bytes | memoryview, kind: type[_T]) -> tuple[_T, bytes]:
    """Header and body of a CALL, INVOKE, RESULT or ANSWER, or ProtocolError."""
    if len(data) < _LENGTH.size:
        raise ProtocolError(detail=f"a header that is cut off after {len(data)} bytes")
    end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    if end > len(data):
        raise ProtocolError(detail="a header that is longer than its frame")
    view, decoder = memoryview(data), _decoders.get(kind) or _decoder(kind)
    if end - _LENGTH.size > INVOKE_BYTES_MAX:
        raise _too_large(end - _LENGTH.size, INVOKE_BYTES_MAX)
    try:
        head: _T = decoder.decode(view[_LENGTH.size : end])
    except Exception as fault:  # as in _checked(), two calls less for each call of a service
        raise ProtocolError(detail=f"a header that cannot be read: {fault}") from fault
    return head, bytes(view[end:])


def encode_error(error: HmsError) -> bytes:
    """An error as it crosses the wire: number and fields, never a traceback."""
    return _encoder.encode(ErrorReply(error.number or 1014, wire_fields(error)))


def wire_fields(error: HmsError) -> dict[str, FieldValue]:
    """The fields of an error, or its text where it is not catalogued."""
    return error.fields if error.number else {"detail": str(error)}


def decode_error(data: bytes | memoryview, request: str = "") -> HmsError:
    """The error that a peer sent; request: what it answers."""
    reply = decode(data, ErrorReply)
    error = make_error(reply.number, reply.fields)
    error.request = request
    return error


def request_id(connection: int, correlation: int) -> str:
    """What names a request at both sides, in the error of the client and in the node's log."""
    return f"{connection}-{correlation}"


def make_error(number: int, fields: dict[str, FieldValue]) -> HmsError:
    """The catalogued error of that number."""
    kind = BY_NUMBER.get(number)
    if kind is None:
        return UnknownError(number_sent=number, detail=str(fields))
    return kind(**fields)


_decoders: dict[type, msgspec.msgpack.Decoder[Any]] = {}


def _decoder(kind: type[_T]) -> msgspec.msgpack.Decoder[_T]:
    found = _decoders.get(kind)
    if found is None:
        found = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    return found


def _checked(
    decoder: msgspec.msgpack.Decoder[_T], data: bytes | memoryview, limit: int = HEADER_BYTES_MAX
) -> _T:
    if len(data) > limit:
        raise _too_large(len(data), limit)
    try:
        return decoder.decode(data)
    except Exception as fault:  # RecursionError and UnicodeDecodeError are no MsgspecError
        raise ProtocolError(detail=f"a header that cannot be read: {fault}") from fault


def _too_large(size: int, limit: int) -> ProtocolError:
    return ProtocolError(detail=f"a header of {size} bytes; {limit} are allowed")
