"""Prefetch buffer: what one consumer was given and what has to be said back about it. No socket or
clock.

A message is in the buffer until it is taken, and then *seen*. What was taken uses up the credit,
which is given back in batches when half of it is used; so the buffer never holds more than the
credit. The same holds for bytes (prefetch_window.py). What expired while it waited here is
released: the application never saw it. With each Recover or Rollback a new epoch begins, and with
each connection a new incarnation: what was delivered before is void."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from hms.client.core.link import Link
from hms.client.core.listener_outcomes import Reject, Retry
from hms.client.core.pending_requests import Pending
from hms.client.destinations import Destination
from hms.client.message_lists import Delivered, Lists
from hms.client.prefetch_window import Window
from hms.errors.tree import HmsError
from hms.wire.frames import Action, Settlement, as_ranges
from hms.wire.structures import OpenConsumer

RANGES_OF_ITEM_MAX = 16_384
CREDIT_BYTES_MAX = 0xFFFF_FFFF
"""More is in no window: a list of more than that is given back as so much."""
DELAY_MS_MAX = 0xFFFF_FFFF
CREDIT_SHARED_MIN = 16
"""With less credit, each message that the node keeps for others counts."""


class Stamp(NamedTuple):
    """When something was delivered."""

    incarnation: int
    epoch: int


class PrefetchBuffer:
    """One consumer's; see the module. clock_ms: for expiry, milliseconds since 1970 UTC.

    notify: what to wake besides this buffer when something came. is_ordered: what failed in a
    listener comes again before what was delivered behind it (F-E9). on_taken_back: told that the
    node closes it, before what is here is dropped.
    """

    def __init__(
        self,
        link: Link,
        opening: OpenConsumer,
        destination: Destination,
        clock_ms: Callable[[], int],
        notify: object,
        *,
        is_ordered: bool = False,
        on_taken_back: Callable[["PrefetchBuffer"], None] = lambda _prefetched: None,
    ) -> None:
        self.link = link
        self._on_taken_back = on_taken_back
        self.is_ordered = is_ordered
        self.opening = opening
        self.number = opening.consumer
        self.destination = destination
        self.is_open = False
        self.has_left = False
        """Closed, with messages that its application may still acknowledge."""
        self.buffer: deque[Delivered] = deque()
        self.seen: dict[int, None] = {}
        self.acknowledged: list[int] = []
        self._said_last, self._said_count = 0, 0
        """Of the transaction, what was acknowledged and said: the last one, and how many."""
        self.error: HmsError | None = None
        self.stamp = Stamp(0, 0)
        self.taken_count = 0
        """Of the credit; what the application took since credit was given."""
        self.window = Window(opening.credit_bytes)
        self.allowance = 0
        """How many messages may be taken without any check but of the message itself."""
        self._clock_ms = clock_ms
        self._notify = notify
        self.released: list[int] = []
        """What expired here and is not said yet."""
        self._lists: Lists | None = None
        """Of a queue that gathers groups."""

    def opened(self, pending: Pending) -> None:
        """OpenConsumer was answered, or will not be."""
        self.is_open = pending.error is None
        if self.is_open and (pending.value() or {}).get("is_gathering"):
            self._lists = self._lists or Lists()
        if pending.error is not None:
            self.closed(pending.error)

    def delivered(self, epoch: int, messages: Sequence[Delivered], size_bytes: int) -> None:
        """A DELIVER came; one of an older epoch is dropped, the node has its messages back."""
        if epoch != self.stamp.epoch:
            return
        came = self._lists.whole(messages) if self._lists is not None else messages
        self.buffer.extend(came)
        if self.window.arrived(len(came), size_bytes) and self.allowance:
            self.allowance = min(self.allowance, max(0, self.credit_left))
        self.link.woken += (self, self._notify)

    def closed(self, error: HmsError) -> None:
        """There is no consumer at the node, or not any more."""
        self.error = error
        self.link.woken += (self, self._notify)

    def taken_back(self, error: HmsError) -> None:
        """The node closed the consumer, and has back what was not settled."""
        self._on_taken_back(self)
        self.closed(error)

    def take(self) -> Delivered | None:
        """The next message for the application, or None."""
        while self.buffer:
            delivered = self.buffer.popleft()
            self.taken_count += 1
            row = delivered[0]
            if not row.expires_at_ms or row.expires_at_ms > self._clock_ms():
                return delivered
            self.released.append(row.message_id)
        return None

    def skip_expired(self) -> bool:
        """Release what expired at the head of the buffer; whether anything did."""
        now_ms, buffer, before = self._clock_ms(), self.buffer, len(self.released)
        while buffer and 0 < buffer[0][0].expires_at_ms <= now_ms:
            self.released.append(buffer.popleft()[0].message_id)
            self.taken_count += 1
        return len(self.released) > before

    @property
    def is_credit_due(self) -> bool:
        """Whether half of the credit is used up, or something expired here."""
        if 2 * self.taken_count >= self.opening.credit or self.released:
            return True
        return self.window.taken(len(self.buffer))

    @property
    def is_credit_near(self) -> bool:
        """Whether it is due soon, so that it goes along when another one's is given."""
        return self.opening.credit >= CREDIT_SHARED_MIN and 8 * self.taken_count >= (
            3 * self.opening.credit
        )

    @property
    def credit_left(self) -> int:
        """How many may be taken before credit is due."""
        count = (self.opening.credit - 1) // 2 - self.taken_count
        return self.window.until_due(count, len(self.buffer))

    def settlements(
        self, *, with_credit: bool, with_acknowledgements: bool = True
    ) -> list[Settlement]:
        """What has to be said now, and is taken as said.

        Credit is given only when the application comes for more: with a prefetch of one the next
        message stays at the node, for others, while this one is worked on.
        """
        items: list[Settlement] = []
        self.allowance = 0
        if with_acknowledgements and self.acknowledged:
            self._said_last = self.acknowledged[-1]
            self._said_count += len(self.acknowledged)
            items += self._items(Action.ACKNOWLEDGE, sorted(self.acknowledged))
            self.acknowledged.clear()
        if self.released:
            items += self._items(Action.RELEASE, self.released)
        is_giving = with_credit and (self.is_credit_due or self.is_credit_near)
        self.released.clear()
        if is_giving:
            items += self._credit_items()
        return items

    def _credit_items(self) -> list[Settlement]:
        """What was taken may be sent again: bytes first, so that one look for messages does."""
        self.window.taken(len(self.buffer))
        size_bytes, items = self.window.give_back(), []
        if size_bytes:
            items.append(self._item(Action.CREDIT_BYTES, credit=min(size_bytes, CREDIT_BYTES_MAX)))
        if self.taken_count:
            items.append(self._item(Action.CREDIT, credit=self.taken_count))
            self.taken_count = 0
        return items

    def give_back(self) -> list[Settlement]:
        """Release what nobody has seen, and let others come in its place. Lists are kept: of one
        that is not whole nobody knows here what it has."""
        if self._lists is not None or not (self.is_open and self.buffer):
            return []
        items = self._items(Action.RELEASE, [row.message_id for row, _, _ in self.buffer])
        self.taken_count += len(self.buffer)
        self.buffer.clear()
        self.allowance = 0
        return [*items, *self._credit_items()]

    def fail_seen(self) -> list[Settlement]:
        """Give back, as failed attempts, what the application saw and did not acknowledge."""
        items = self._items(Action.FAIL, self.seen)
        self.seen.clear()
        return items

    def say_seen(self) -> list[Settlement]:
        """Tell, before it closes, what the application has: that is no failed attempt."""
        return self._items(Action.SEEN, self.seen)

    def fail(self, message_id: int, why: tuple[str, str] = ("", "")) -> list[Settlement]:
        """Give one message back as a failed attempt. why: code and text."""
        self.seen.pop(message_id, None)
        return [self._item(Action.FAIL, ranges=[(message_id, message_id)], why=why)]

    def judge(
        self, message_id: int, verdict: Reject | Retry, why: tuple[str, str] = ("", "")
    ) -> list[Settlement]:
        """Reject one message, or return it to be retried after its own delay."""
        self.seen.pop(message_id, None)
        if message_id in self.acknowledged:  # of a transaction, which is about to be rolled back
            self.acknowledged.remove(message_id)
        ranges = [(message_id, message_id)]
        if isinstance(verdict, Reject):
            return [self._item(Action.REJECT, ranges=ranges, why=why)]
        delay_ms = min(round(verdict.delay_s * 1000), DELAY_MS_MAX)
        return [self._item(Action.RETRY, credit=delay_ms, ranges=ranges, why=why)]

    @property
    def taken_of_transaction(self) -> tuple[int, int]:
        """How many messages the transaction has from here, and the id of the last one."""
        last = self.acknowledged[-1] if self.acknowledged else self._said_last
        return self._said_count + len(self.acknowledged), last

    def transaction_ended(self) -> None:
        """What was received belongs to no transaction any more."""
        self._said_last = self._said_count = 0

    def next_epoch(self) -> None:
        """Recover or Rollback: the node takes everything back and sets the credit anew."""
        self._forget()
        self.stamp = Stamp(self.stamp.incarnation, self.stamp.epoch + 1)

    def lost(self) -> list[int]:
        """The connection is gone; the ids of messages whose acknowledgement was not sent."""
        unsaid = list(self.acknowledged)
        self._forget()
        self.stamp = Stamp(self.stamp.incarnation + 1, 0)
        self.link.woken += (self, self._notify)
        return unsaid

    def discard(self, *, is_seen_kept: bool = False) -> None:
        """The consumer is closed: the node takes back what the application did not see. What it has
        seen it may acknowledge while the session is open."""
        seen = dict(self.seen) if is_seen_kept else {}
        self._forget()
        self.seen.update(seen)
        self.has_left = bool(seen)
        self.is_open = False
        self.link.woken += (self, self._notify)

    def _forget(self) -> None:
        self.transaction_ended()
        self.buffer.clear()
        self.seen.clear()
        self.acknowledged.clear()
        self.released.clear()
        self.window.clear()
        self.taken_count = self.allowance = 0
        if self._lists is not None:
            self._lists.begun.clear()

    def _items(self, action: Action, message_ids: Iterable[int]) -> list[Settlement]:
        ranges = as_ranges(message_ids)
        if 0 < len(ranges) <= RANGES_OF_ITEM_MAX:
            return [Settlement(action, self.number, self.stamp.epoch, 0, ranges)]
        return [
            self._item(action, ranges=ranges[start : start + RANGES_OF_ITEM_MAX])
            for start in range(0, len(ranges), RANGES_OF_ITEM_MAX)
        ]

    def _item(
        self,
        action: Action,
        *,
        credit: int = 0,
        ranges: list[tuple[int, int]] | None = None,
        why: tuple[str, str] = ("", ""),
    ) -> Settlement:
        return Settlement(action, self.number, self.stamp.epoch, credit, ranges or [], *why)
