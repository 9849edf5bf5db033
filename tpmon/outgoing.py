"""Outgoing: the frames of a release, in order; a fan-out is put together once.

Consumers that get the very same messages share the bytes, and those of one connection share the
frame: so a publication costs a frame for each connection, however many subscribers it has there.
"""

from collections.abc import Hashable

from hms.engine.effects import Deliver, Effect
from tpmon.protocol.frames import DELIVER_FURTHER_MAX, Kind, delivery_head, frame
from tpmon.wire import Frame, PayloadsOf, delivered_parts, encode_effect

__all__ = ["Outgoing"]


class _Delivery:
    """A delivery to one or more consumers of one connection."""

    __slots__ = ("effect", "receivers")

    def __init__(self, effect: Deliver) -> None:
        self.effect = effect
        self.receivers = [(effect.consumer, effect.epoch)]


class Outgoing:
    """payloads_of reads what is not in memory."""

    def __init__(self, payloads_of: PayloadsOf | None = None) -> None:
        self._payloads_of = payloads_of
        self._out: list[tuple[Hashable, Frame | _Delivery]] = []
        self._last: dict[Hashable, _Delivery] = {}
        """The last word for a peer, if it is a delivery that others may share."""

    def __bool__(self) -> bool:
        return bool(self._out)

    def say(self, peer: Hashable, words: Frame) -> None:
        """A frame that is made already."""
        self._last.pop(peer, None)
        self._out.append((peer, words))

    def tell(self, peer: Hashable, effect: Effect) -> None:
        """What a peer is to be told."""
        if not isinstance(effect, Deliver):
            self.say(peer, encode_effect(effect, self._payloads_of))
            return
        is_first = effect.counts is None and effect.parts is None
        last = self._last.get(peer) if is_first else None
        if last is not None and self._can_join(last, effect):
            last.receivers.append((effect.consumer, effect.epoch))
            return
        made = _Delivery(effect)
        self._out.append((peer, made))
        if is_first:
            self._last[peer] = made
        else:
            self._last.pop(peer, None)

    @staticmethod
    def _can_join(last: _Delivery, effect: Deliver) -> bool:
        """The very same messages: they know no other equality."""
        is_same = last.effect.messages == effect.messages
        return is_same and len(last.receivers) <= DELIVER_FURTHER_MAX

    def frames(self) -> list[tuple[Hashable, Frame]]:
        """All of it, in order, as it crosses the wire."""
        made: list[tuple[Hashable, Frame]] = []
        before: Deliver | None = None
        parts: list[bytes] = []
        for peer, words in self._out:
            if not isinstance(words, _Delivery):
                made.append((peer, words))
                continue
            effect = words.effect
            if before is None or not _is_alike(before, effect):
                before, parts = effect, delivered_parts(effect, self._payloads_of)
            elif len(parts) > 1:
                parts = [b"".join(parts)]
            head = delivery_head(words.receivers, len(effect.messages))
            payload = b"".join([head, *parts])
            made.append((peer, frame(Kind.DELIVER, payload, count=len(effect.messages))))
        return made


def _is_alike(one: Deliver, other: Deliver) -> bool:
    return (
        one.messages == other.messages and one.counts == other.counts and one.parts == other.parts
    )
