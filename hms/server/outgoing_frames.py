"""Outgoing frames: the frames of a release, in order; a fan-out is put together once.

Consumers that get the very same messages share the bytes, and those of one connection share the
frame: so a publication costs a frame for each connection, however many subscribers it has there.
Subscribers who take their time ask for the same messages one after the other, so what was put
together last for topics is remembered for the next releases.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence

from hms.engine.effects import Deliver, Effect
from hms.engine.messages import StoredMessage
from hms.server.effect_encoding import Frame, PayloadsOf, delivered_parts, encode_effect
from hms.wire.frames import DELIVER_FURTHER_MAX, Kind, delivery_head, frame

__all__ = ["OutgoingFrames", "Packs"]

PACKS_MAX = 16
PACK_MESSAGES_MIN = 8
"""Packs of fewer messages are made anew: to remember them costs more."""
LOOKED_AT_MAX = 16
"""So many of a peer's last deliveries are looked at; a thousand selectors make as many of them."""


class Packs:
    """The rows and payloads of the last deliveries to topics' subscribers."""

    def __init__(self) -> None:
        self._packs: OrderedDict[tuple[int, int], tuple[Sequence[StoredMessage], list[bytes]]] = (
            OrderedDict()
        )

    def __len__(self) -> int:
        return len(self._packs)

    def parts_of(self, effect: Deliver, payloads_of: PayloadsOf | None) -> list[bytes]:
        """What comes behind the head of a delivery; joined from the second time on."""
        messages = effect.messages
        is_shared = effect.kind == "topic" and len(messages) >= PACK_MESSAGES_MIN
        if not is_shared or effect.counts is not None or effect.parts is not None:
            return delivered_parts(effect, payloads_of)
        key = messages[0].id, len(messages)
        known = self._packs.get(key)
        if known is not None and known[0] == messages:  # the very same: they know no other equality
            parts = known[1]
            if len(parts) > 1:
                parts[:] = [b"".join(parts)]
            return parts
        parts = delivered_parts(effect, payloads_of)
        self._packs[key] = (messages, parts)
        if len(self._packs) > PACKS_MAX:
            self._packs.popitem(last=False)
        return parts

    def forget(self) -> None:
        """Give up their bytes; who still asks for them has them made anew."""
        self._packs.clear()


class _Delivery:
    """A delivery to one or more consumers of one connection."""

    __slots__ = ("_consumers", "effect", "receivers")

    def __init__(self, effect: Deliver) -> None:
        self.effect = effect
        self.receivers = [(effect.consumer, effect.epoch)]
        self._consumers = {effect.consumer}

    def can_take(self, effect: Deliver) -> bool:
        """Whether another consumer's delivery is the same one."""
        mine = self.effect
        return (
            mine.messages == effect.messages
            and mine.counts is None
            and mine.parts is None
            and len(self.receivers) <= DELIVER_FURTHER_MAX
        )

    def take(self, effect: Deliver) -> None:
        """It is the delivery of another consumer too."""
        self.receivers.append((effect.consumer, effect.epoch))
        self._consumers.add(effect.consumer)

    def is_to(self, consumer: int) -> bool:
        """Whether that consumer gets it."""
        return consumer in self._consumers


class OutgoingFrames:
    """payloads_of reads what is not in memory."""

    def __init__(self, payloads_of: PayloadsOf | None = None, packs: Packs | None = None) -> None:
        self._payloads_of = payloads_of
        self._packs = Packs() if packs is None else packs
        self.size_bytes = 0
        """What the frames so far will take, about."""
        self.out: list[tuple[Hashable, Frame | _Delivery]] = []
        self._last: dict[Hashable, list[_Delivery]] = {}
        """The last words for a peer, as far as they are deliveries, which others may share."""

    def say(self, peer: Hashable, words: Frame) -> None:
        """A frame that is made already."""
        self._last.pop(peer, None)
        self.out.append((peer, words))
        self.size_bytes += len(words[1])

    def tell(self, peer: Hashable, effect: Effect) -> None:
        """What a peer is to be told."""
        if not isinstance(effect, Deliver):
            self._last.pop(peer, None)
            made = encode_effect(effect, self._payloads_of)
            self.out.append((peer, made))
            self.size_bytes += len(made[1])
            return
        last = self._last.setdefault(peer, [])
        shared = self._shared(last, effect)
        if shared is not None:
            shared.take(effect)
            return
        delivery = _Delivery(effect)
        self.size_bytes += sum([message.length for message in effect.messages])
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
            made = self._frame(words) if isinstance(words, _Delivery) else words
            frames.append((peer, made))
        return frames

    def _frame(self, delivery: _Delivery) -> Frame:
        effect = delivery.effect
        count = len(effect.messages)
        parts = self._packs.parts_of(effect, self._payloads_of)
        payload = b"".join([delivery_head(delivery.receivers, count), *parts])
        return frame(Kind.DELIVER, payload, count=count)
