"""Outgoing frames: what a release says, in order; who gets the very same gets it together.

Consumers of one connection that get the very same messages share the frame: so a publication costs
a frame for each connection, however many subscribers it has there. What a frame looks like is the
concern of its peer's door.
"""

from collections.abc import Hashable, Mapping

import msgspec

from hms.engine.effects import Deliver
from hms.engine.messages import length_of
from hms.server.doors.door import Door, Frame, PayloadsOf, Said
from hms.wire.frames import DELIVER_FURTHER_MAX

__all__ = ["OutgoingFrames"]

LOOKED_AT_MAX = 16
"""So many of a peer's last deliveries are looked at; a thousand selectors make as many of them."""


class _Delivery(msgspec.Struct, eq=False):
    """A delivery to one or more consumers of one connection."""

    effect: Deliver
    receivers: list[tuple[int, int]]
    """Consumers and their epochs."""
    consumers: set[int]

    def can_take(self, effect: Deliver) -> bool:
        """Whether another consumer's delivery is the same one."""
        mine = self.effect
        return (
            mine.messages == effect.messages
            and mine.fencing_token == effect.fencing_token
            and mine.counts is None
            and mine.parts is None
            and len(self.receivers) <= DELIVER_FURTHER_MAX
        )

    def take(self, effect: Deliver) -> None:
        """It is the delivery of another consumer too."""
        self.receivers.append((effect.consumer, effect.epoch))
        self.consumers.add(effect.consumer)

    def is_to(self, consumer: int) -> bool:
        """Whether that consumer gets it."""
        return consumer in self.consumers


class OutgoingFrames(msgspec.Struct, eq=False):
    """native: the door of peers that have none of their own in doors; payloads_of reads what is not
    in memory."""

    native: Door
    doors: Mapping[Hashable, Door]
    payloads_of: PayloadsOf | None = None
    size_bytes: int = 0
    """What the frames so far will take, about."""
    out: list[tuple[Hashable, Frame | _Delivery]] = []
    last: dict[Hashable, list[_Delivery]] = {}
    """The last words for a peer, as far as they are deliveries, which others may share."""

    def tell(self, peer: Hashable, effect: Said | Deliver) -> None:
        """What a peer is to be told."""
        if not isinstance(effect, Deliver):
            self.last.pop(peer, None)
            made = self.doors.get(peer, self.native).encode(effect, self.payloads_of)
            self.out.append((peer, made))
            self.size_bytes += len(made[1])
            return
        last = self.last.setdefault(peer, [])
        shared = self._shared(last, effect) if last else None
        if shared is not None:
            shared.take(effect)
            return
        delivery = _Delivery(effect, [(effect.consumer, effect.epoch)], {effect.consumer})
        self.size_bytes += sum(map(length_of, effect.messages))
        self.out.append((peer, delivery))
        last.append(delivery)

    @staticmethod
    def _shared(last: list[_Delivery], effect: Deliver) -> _Delivery | None:
        """A delivery of the same messages, behind all that its consumer has got."""
        if effect.counts is not None or effect.parts is not None:
            return None
        for delivery in reversed(last[-LOOKED_AT_MAX:]):
            if delivery.is_to(effect.consumer):
                return None
            if delivery.can_take(effect):
                return delivery
        return None

    def frames(self) -> list[tuple[Hashable, Frame]]:
        """All of it, in order, as it crosses the wire."""
        frames: list[tuple[Hashable, Frame]] = []
        for peer, words in self.out:
            if isinstance(words, _Delivery):
                door = self.doors.get(peer, self.native)
                made = door.deliver(words.effect, words.receivers, self.payloads_of)
                frames.append((peer, made))
            else:
                frames.append((peer, words))
        return frames
