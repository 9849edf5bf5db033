"""A link that is up without a socket, and a look at what it sends."""

import hms
from hms.client.core.link import Link
from hms.wire import frames, structures
from hms.wire.frames import CONFIRM_BODY, Kind
from hms.wire.structures import Hello, Limits, Welcome

LIMITS = Limits(1 << 20, 1 << 22, 2, 1000, 30.0)
LOST = hms.ConnectionLost(address="a", reason="cut")


def new_link() -> Link:
    """A link that is up."""
    link = Link(Hello(1))
    up(link)
    return link


def up(link: Link, **told) -> None:
    """Connect it; told: what the WELCOME says more."""
    link.greet(0.0)
    greeting = frames.decode_envelope(link.outbox[-1], 1 << 30).correlation
    link.outbox.clear()
    welcome = structures.encode(Welcome(1, "node", 7, LIMITS, **told))
    link.receive(frames.frame(Kind.WELCOME, welcome, greeting), 0.0)


def sent(link: Link, kind: Kind) -> list:
    """The payloads of that kind in the outbox."""
    return [
        parts[1] for parts in link.outbox if frames.decode_envelope(parts, 1 << 30).kind is kind
    ]


def answer(link: Link, parts, kind: Kind, payload: bytes = b"") -> None:
    """The node answers that frame."""
    correlation = frames.decode_envelope(parts, 1 << 30).correlation
    link.receive(frames.frame(kind, payload, correlation), 1.0)


def confirm(link: Link, number: int, first: int, count: int) -> None:
    """The node confirms that frame of the outbox."""
    answer(link, link.outbox[number], Kind.CONFIRM, CONFIRM_BODY.pack(first, 5, count))
