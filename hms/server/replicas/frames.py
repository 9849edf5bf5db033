"""Frames of the link between copies: an envelope and what is said, and bytes of the log behind it.

Two parts for each message. A frame of another log, epoch or start is refused by the envelope alone.
`mark` numbers what the primary has written; 0 for bytes that a copy gets because it lacks them.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from hms.errors.catalogue import ReplicaFrameBad
from hms.wire.record_runs import crc32

__all__ = [
    "BYTES_MAX",
    "FORMAT",
    "Ack",
    "AppliedUpTo",
    "Aside",
    "AskApplied",
    "Beat",
    "BeatAck",
    "Bye",
    "Clock",
    "ConfirmedUpTo",
    "Cut",
    "Data",
    "Digest",
    "Digested",
    "Drop",
    "Envelope",
    "Fence",
    "FileGone",
    "FilePart",
    "Inspect",
    "Inspected",
    "Join",
    "Keep",
    "Mark",
    "Order",
    "OrderDone",
    "PastPart",
    "Promised",
    "Reads",
    "Rejoin",
    "Resume",
    "Said",
    "Segment",
    "Time",
    "Whole",
    "Write",
    "before",
    "decode",
    "digest_of",
    "encode",
]

FORMAT: Final = 1
"""Of these frames; another one is refused."""
BYTES_MAX: Final = 1 << 20
"""Bytes of the log in one frame."""
Data = bytes | memoryview


class _Said(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=True):
    pass


class Join(_Said, frozen=True):
    """A copy wants the log. segments: header by number, of all that it has; ends: where the bytes
    of the last ones end; files: those that are there in full; past: segments that only its history
    has, None from a copy of a release before."""

    copy_id: str
    promised: int
    segments: dict[int, bytes]
    ends: dict[int, int]
    files: list[str]
    past: list[int] | None = None


class JoinBefore(_Said, frozen=True, tag="Join"):
    """The same, as a primary of a release before reads it."""

    copy_id: str
    promised: int
    segments: dict[int, bytes]
    ends: dict[int, int]
    files: list[str]


class Rejoin(_Said, frozen=True):
    """The primary does not know the sender: join."""


class Resume(_Said, frozen=True):
    """A copy is taken in; what follows is of this epoch and start."""


class Drop(_Said, frozen=True):
    """Remove segments that the primary's log does not have, and files."""

    segments: list[int]
    files: list[str]


class Aside(_Said, frozen=True):
    """Set these segments aside: nobody adopted them."""

    segments: list[int]


class Segment(_Said, frozen=True):
    """A segment begins, of this size; its header is behind it. suffix: the end of its name."""

    mark: int
    number: int
    size: int
    suffix: str


class Write(_Said, frozen=True):
    """Bytes of a segment are behind it."""

    mark: int
    number: int
    offset: int
    crc: int


class Cut(_Said, frozen=True):
    """Nothing follows behind this offset."""

    number: int
    end: int


class Keep(_Said, frozen=True):
    """What the log needs: segments from oldest on, and these before it; and the history's."""

    mark: int
    oldest: int
    pinned: list[int]
    history: list[int]


class FilePart(_Said, frozen=True):
    """Bytes of a file are behind it; is_last: it is whole with them."""

    mark: int
    name: str
    offset: int
    is_last: bool
    crc: int


class PastPart(_Said, frozen=True):
    """Bytes of a segment that only the history has are behind it; is_last: it is whole with
    them."""

    number: int
    offset: int
    is_last: bool
    crc: int


class FileGone(_Said, frozen=True):
    """A file is not needed any more."""

    mark: int
    name: str


class Whole(_Said, frozen=True):
    """All that was written up to this mark was sent."""

    mark: int


class Ack(_Said, frozen=True):
    """Everything up to the mark is synced; so many frames were taken since it joined."""

    mark: int
    frames: int


class Beat(_Said, frozen=True):
    """The primary lives; at_s: on its clock."""

    at_s: float


class BeatAck(_Said, frozen=True):
    """A copy heard the beat of that time."""

    at_s: float


class ConfirmedUpTo(_Said, frozen=True):
    """Everything before this place of a segment is confirmed: a reader of the copy may have it."""

    number: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    offset: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class Mark(_Said, frozen=True):
    """What an archive has of the log, as its mark says that lies beside a copy."""

    mark: Annotated[bytes, Meta(max_length=1 << 20)]


class Fence(_Said, frozen=True):
    """A candidate asks for a promise: no frame of a lower epoch than its own is taken any more."""


class Promised(_Said, frozen=True):
    """A copy has promised the epoch of a Fence, for good. end: epoch and number of its last
    segment, and the offset behind its last record; is_clean: it lost nothing of what it had."""

    copy_id: str
    epoch: int
    end: tuple[int, int, int]
    is_clean: bool


class Reads(_Said, frozen=True):
    """Formats of the log that a copy could lead with. A release before says nothing."""

    formats: Annotated[list[int], Meta(max_length=16)]


class AskApplied(_Said, frozen=True):
    """How far has a copy applied the log? Asked of those that have said it once. hurries: a move
    waits for it."""

    hurries: bool = False


class AppliedUpTo(_Said, frozen=True):
    """What lies before this place of a segment is applied at a hot standby. It says so when it has
    joined, and when it is asked; a release before refuses it. lsn: the last sequence number before
    it, 0 for none."""

    number: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    offset: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    lsn: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] = 0


class Time(_Said, frozen=True):
    """What the node's clock says, for copies that have said what they read: another one takes it
    up, whatever its machine's clock says."""

    at_ms: Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]


class Clock(_Said, frozen=True):
    """What the clock of a copy's machine says, in answer to the beat of that time, so that an
    operator hears of clocks that differ. Said to a primary that tells its time; a release before
    tells none."""

    at_s: float
    at_ms: Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]


class Order(_Said, frozen=True):
    """An operator at a machine that follows wants another replica to lead. by: who; the rest as in
    hms.wire.operations.SwitchOver. A release before refuses it, and does not answer."""

    to: Annotated[str, Meta(max_length=255)]
    is_forced: bool
    drain_s: Annotated[float, Meta(ge=0, le=3600)] | None
    by: Annotated[str, Meta(max_length=255)]
    apply_s: Annotated[float, Meta(ge=0, le=3600)] | None = None


class OrderBefore(_Said, frozen=True, tag="Order"):
    """The same, as a primary of a release before reads it."""

    to: str
    is_forced: bool
    drain_s: float | None
    by: str


class OrderDone(_Said, frozen=True):
    """Who leads from now on, after this epoch; or the error, behind the envelope."""

    to: str
    epoch: int


class Inspect(_Said, frozen=True):
    """A command at a machine that follows looks at the primary's log, and at how far behind its
    copy is. A release before refuses it, and does not answer."""


class Inspected(_Said, frozen=True):
    """The primary's segments, those of the history among them, as far as it is confirmed, and the
    sender's copy as the primary knows it."""

    segments: list[int]
    confirmed: tuple[int, int]
    state: str
    lag_bytes: int
    lag_s: float


class Digest(_Said, frozen=True):
    """What are these bytes of a segment, so that a copy can be compared? As Inspect."""

    number: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    offset: Annotated[int, Meta(ge=0, le=(1 << 40) - 1)]
    size: Annotated[int, Meta(ge=1, le=BYTES_MAX)]


class Digested(_Said, frozen=True):
    """BLAKE2b of the first ones, as many as size says: fewer than were asked for where the file
    ends, and -1 where there is no such segment."""

    number: int
    offset: int
    size: int
    digest: bytes


class Bye(_Said, frozen=True):
    """Its sender stops."""


Said = (
    Join
    | Rejoin
    | Resume
    | Drop
    | Aside
    | Segment
    | Write
    | Cut
    | Keep
    | FilePart
    | PastPart
    | FileGone
    | Whole
    | Ack
    | Beat
    | BeatAck
    | ConfirmedUpTo
    | Mark
    | Fence
    | Promised
    | Reads
    | AskApplied
    | AppliedUpTo
    | Time
    | Clock
    | Order
    | OrderDone
    | Inspect
    | Inspected
    | Digest
    | Digested
    | Bye
)


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Who says what, of which log and epoch, in which start of its process."""

    form: int
    log: str
    epoch: int
    replica: str
    start: int
    said: Said


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Envelope)


def digest_of(data: bytes) -> bytes:
    """What tells bytes from others."""
    return blake2b(data, digest_size=32).digest()


def before(said: Join | Order) -> Said:
    """As a release before reads it."""
    if isinstance(said, Order):
        return OrderBefore(said.to, said.is_forced, said.drain_s, said.by)  # type: ignore[return-value] # as below
    return JoinBefore(  # type: ignore[return-value] # it is none that is read here
        said.copy_id, said.promised, said.segments, said.ends, said.files
    )


def encode(envelope: Envelope) -> bytes:
    """The first part of a message."""
    return _ENCODER.encode(envelope)


def decode(parts: Sequence[Data]) -> tuple[Envelope, Data]:
    """A message, checked; ReplicaFrameBad."""
    if len(parts) != 2:  # noqa: PLR2004 - an envelope and bytes
        raise ReplicaFrameBad(detail=f"it has {len(parts)} parts")
    try:
        envelope = _DECODER.decode(parts[0])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ReplicaFrameBad(detail=str(error)[:200]) from error
    if envelope.form != FORMAT:
        raise ReplicaFrameBad(detail=f"its format is {envelope.form}, {FORMAT} is known")
    said, data = envelope.said, parts[1]
    if isinstance(said, Write | FilePart | PastPart) and said.crc != crc32(data):
        raise ReplicaFrameBad(detail="its bytes do not verify")
    return envelope, data
