"""Effects: what the engine wants done. It does nothing itself (P3).

Everything that one call of the engine asks for is released together, once the records among it are
durable; `must_wait` says so too when there are no new records but older ones may not be synced yet.
Effects are structures that msgspec makes in C: a named tuple costs a call of Python and twice the
time.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from hms.engine.cluster.cluster_messages import ClusterMessage
from hms.engine.messages import StoredMessage
from hms.errors.tree import HmsError
from hms.records import Record


class Reply(msgspec.Struct, frozen=True, gc=False):
    """The answer to a request."""

    connection: int
    correlation: int
    value: Any = None


class PromptReply(Reply, frozen=True, gc=False):
    """The same, of a request that touches no message: it may overtake what waits for the log."""


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """A request, or a batch of messages, was refused and changed nothing."""

    connection: int
    correlation: int
    error: HmsError


class Confirm(msgspec.Struct, frozen=True, gc=False):
    """A batch of messages is taken."""

    connection: int
    correlation: int
    first_message_id: int
    timestamp_ms: int
    message_count: int


class Deliver(msgspec.Struct, gc=False):
    """Messages for a consumer; counts holds how often each has been delivered, this time included,
    or is None when it is the first time for all of them. listener: the service to call instead.
    fencing_token: where its record lies in the log, once it is there; 0 without a record."""

    connection: int
    consumer: int
    epoch: int
    messages: Sequence[StoredMessage]
    counts: Sequence[int] | None
    listener: str = ""
    session: int = 0
    kind: str = ""
    destination: str = ""
    parts: Sequence[int] | None = None
    """Flags of messages that are parts of lists (F-C17); None: there is none."""
    is_recorded: bool = False
    fencing_token: int = 0


class Browsed(msgspec.Struct, frozen=True, gc=False):
    """A page of waiting messages."""

    connection: int
    correlation: int
    messages: Sequence[StoredMessage]
    counts: Sequence[int]
    position: int
    has_more: bool
    flags: Sequence[int] | None = None
    """Of each row; None: none."""


class Ready(msgspec.Struct, frozen=True, gc=False):
    """A watched destination got its first consumer, or lost its last."""

    connection: int
    kind: str
    destination: str
    is_ready: bool


class ToNode(msgspec.Struct, frozen=True, gc=False):
    """A word for another node of the cluster; what it offers goes with it. connection: none."""

    node: int
    word: ClusterMessage
    messages: Sequence[StoredMessage] = ()
    connection: int = 0


class FileDropped(msgspec.Struct, frozen=True, gc=False):
    """No message names this file any more."""

    file: str
    connection: int = 0


Effect = Reply | Refusal | Confirm | Deliver | Browsed | Ready


class Effects(msgspec.Struct):
    """What one call of the engine asks for, in order. out: effects, and what the broker itself adds
    among them. unawaited: so many of the records nobody waits for: losing them in a crash is as if
    the call had never come, and a repeated question gets the same answer. They are synced with what
    comes next."""

    records: list[Record] = []
    out: list[Any] = []
    must_wait: bool = False
    unawaited: int = 0
