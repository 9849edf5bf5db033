"""A session and a consumer of it without a socket: what it is given and what it says."""

from client_link import sent

import hms
from hms.client.core.link import Link
from hms.client.prefetch_buffer import PrefetchBuffer
from hms.client.session_state import SessionState
from hms.wire import frames
from hms.wire.frames import DELIVER_HEAD, Kind
from hms.wire.packed_messages import DELIVERED_ROW
from hms.wire.structures import OpenConsumer


def make_prefetch_buffer(
    link: Link,
    state: SessionState,
    credit: int = 10,
    *,
    ordered: bool = False,
    number: int = 5,
    credit_bytes: int = 0,
) -> PrefetchBuffer:
    """A consumer of the session, 5 if not said otherwise."""
    opening = OpenConsumer(number, state.number, "queue", "q", credit, credit_bytes=credit_bytes)
    prefetched = PrefetchBuffer(
        link, opening, hms.Queue("q"), lambda: 1_000, None, is_ordered=ordered
    )
    link.receivers[number] = prefetched
    state.prefetch_buffers[number] = prefetched
    return prefetched


def make_state(link: Link, ack: hms.AckMode = hms.AckMode.AUTO, **kind: bool) -> SessionState:
    """A session that is open."""
    return SessionState(
        link, ack, is_transacted=kind.get("transacted", False), is_asynchronous=False
    )


def deliver(
    link: Link, *message_ids: int, epoch: int = 0, expires_at_ms: int = 0, consumer: int = 5
) -> None:
    """The node delivers messages to a consumer."""
    rows = [DELIVERED_ROW.pack(one, 1, expires_at_ms, 1, 0, 0, 4, 0, 1, 0) for one in message_ids]
    head = DELIVER_HEAD.pack(consumer, epoch, len(rows), 0)
    link.receive(frames.frame(Kind.DELIVER, head + b"".join(rows)), 1.0)


def consume(state: SessionState, prefetched: PrefetchBuffer) -> int:
    """The application takes the next message; its id."""
    message_id = prefetched.take()[0].message_id
    state.consumed(prefetched, message_id)
    return message_id


def kind_of(parts) -> Kind:
    """The kind of a frame."""
    return frames.decode_envelope(parts, 1 << 30).kind


def settlements(link: Link) -> list:
    """What was said of messages, and the credit that was given."""
    items = [item for one in sent(link, Kind.SETTLE) for item in frames.decode_settle(one)]
    return [(item.action, item.credit or list(item.ranges)) for item in items]


def credits_given(link: Link) -> list[tuple[int, int]]:
    """Consumer and credit of each item that was said."""
    items = [item for one in sent(link, Kind.SETTLE) for item in frames.decode_settle(one)]
    return [(item.consumer, item.credit) for item in items]
