"""Candidates: what waits in a queue and matches one consumer's selector, in the queue's order.

Of a queue's waiting messages, which scan_order.py keeps once for all, a consumer remembers how far
it has looked and the first few that match; when those are taken it looks on. So what it keeps has a
bound, whatever waits. Messages that somebody else takes are noticed when their turn comes. A
message that comes before the place reached is looked at immediately as far as the steps of this
moment go, else later (scan_slices.py).
"""

from bisect import bisect_left
from typing import Protocol

from hms.engine.effects import Reply
from hms.engine.groups.message_groups import MessageGroups
from hms.engine.groups.message_sort import Entry, MessageSort
from hms.engine.groups.scan_order import BEGINNING, END, Key, Offer, ScanOrder, behind
from hms.engine.groups.scan_slices import ScanSlices
from hms.engine.messages import StoredMessage
from hms.engine.queue.consumer_view import ConsumerView
from hms.engine.selector.selector_cost import Price

FOUND_MAX = 256
"""So many that match are remembered; what is behind them is looked at again."""
GROWN_AT_ONCE = 4096
"""So much of the order is made when a consumer comes: 6 ms where a boot has opened nothing yet."""


class SelectedLine(Protocol):
    """The messages that selectors choose from; see queue/pending_list.py."""

    groups: MessageGroups | None

    @property
    def sort(self) -> MessageSort | None:
        """What orders the messages beside their arrival."""

    def open_scan(self) -> ScanOrder:
        """Waiting messages in their order."""


class SelectedQueue(Protocol):
    """The queue of these messages."""

    @property
    def line(self) -> SelectedLine:
        """What waits in it."""


class Candidates:
    """Of one consumer."""

    def __init__(
        self, queue: SelectedQueue, consumer: ConsumerView, looking: "ScanSlices[Candidates]"
    ) -> None:
        self.queue = queue
        self._line = queue.line
        self._order = queue.line.open_scan()
        self._wants = consumer.wants
        selector = consumer.selector
        self._price = Price() if selector is None else selector.price
        self._looking = looking
        self._found: list[Key] = []
        """In order; all of them before the place reached."""
        self._reached: Key = BEGINNING
        """It has looked at everything before this place, but for what is late."""
        self._late: tuple[int, int] | None = None
        """Where it goes on in the late offers; None when it is not late."""
        self._floor = 0
        """The lowest seq of what is late."""
        self._is_closed = False
        self.is_behind = False
        """Whether there is something that it looks at in slices."""
        self.replies: list[Reply] = []
        """To polls that are answered when it has looked at everything."""
        self._order.grow(GROWN_AT_ONCE)
        self._look_on(0)
        self._list()

    def offer(self, offer: Offer) -> None:
        """Messages begin to wait, or wait again."""
        if self._late is not None:
            self._order.late.number_of(offer)  # it comes to that
            return
        if offer.first < self._reached and not self._look_now(offer):
            self._late = self._order.late.number_of(offer), 0
            self._order.late.enter()
            self._note_lateness()
        if self._late is not None or self._reached is not END:
            self._list()

    def close(self) -> None:
        """Its consumer goes."""
        self._is_closed, self.is_behind = True, False
        self._found.clear()
        if self._late is not None:
            self._late = None
            self._order.late.leave()

    def first(self) -> Entry | None:
        """The first that still waits, and that anybody may take."""
        found, groups = self._found, self._line.groups
        while found or self._goes_on():
            key = found[0]
            message = self._waiting(*key[-2:])
            if message is not None and (groups is None or groups.is_free(message)):
                return None if self._may_overtake(message) else (*key[:-1], message)
            del found[0]
        return None

    def go_on(self, steps: int) -> None:
        """Look at more of what it has not looked at, for so many steps at most, half of which the
        order may take to grow; one message at least is looked at, or more in the order."""
        if self._is_closed:
            return
        until = max(0, self._looking.steps_left - steps)
        self._looking.steps_left -= self._order.grow(max(1, steps // 2))
        if self._late is not None:
            self._look_at_late(until)
        if self._late is None:
            self._look_on(until)
        self.is_behind = self._needs_more

    # inside

    @property
    def _needs_more(self) -> bool:
        if self._late is not None or self._order.frontier is not END:
            return True
        return self._reached is not END and len(self._found) < FOUND_MAX

    def _list(self) -> None:
        """Be looked after if it needs more."""
        if not self.is_behind and self._needs_more:
            self.is_behind = True
            self._looking.add(self)

    def _goes_on(self) -> bool:
        """Nothing is left of what was found: whether something more is found now."""
        if self._needs_more:
            if self._late is None:
                self._look_on(0)
            self._list()
        return bool(self._found)

    def _waiting(self, seq: int, id_: int) -> StoredMessage | None:
        message = self._order.index.get(id_)
        return message if message is not None and message.seq == seq else None

    def _look_on(self, until: int) -> None:
        """Look at what stands behind the place reached, until so many steps are left or enough is
        found."""
        looking, index, found, wants = self._looking, self._order.index, self._found, self._wants
        last: Key | None = None
        for key in self._order.onwards(self._reached):
            if looking.steps_left <= until or len(found) >= FOUND_MAX:
                if last is not None:
                    self._reached = behind(last)
                return
            last, message = key, index[key[-1]]
            looking.steps_left -= self._price.of(1, message.head_bytes)
            if wants(message):
                found.append(key)
        self._reached = self._order.frontier

    def _look_now(self, offer: Offer) -> bool:
        """Look at what was offered before the place reached; whether the steps went so far."""
        looking = self._looking
        for key, message in offer.keyed:
            if key < self._reached:
                steps = self._price.of(1, message.head_bytes)
                if steps > looking.steps_left:
                    return False
                looking.steps_left -= steps
                if self._wants(message):
                    self._find(key)
        return True

    def _look_at_late(self, until: int) -> None:
        looking, order = self._looking, self._order
        place = self._late and order.late.next_at(*self._late)
        while place is not None and looking.steps_left > until:
            message = self._waiting(*order.late.get(*place))
            looking.steps_left -= 1
            key = order.key(message) if message is not None else self._reached
            if message is not None and key < self._reached:
                looking.steps_left -= self._price.of(1, message.head_bytes)
                if self._wants(message):
                    self._find(key)
            place = order.late.next_at(place[0], place[1] + 1)
        self._late = place
        if place is None:
            order.late.leave()
        else:
            self._note_lateness()

    def _note_lateness(self) -> None:
        place = self._late and self._order.late.next_at(*self._late)
        assert place is not None, "nothing is late"
        self._floor = self._order.late.lowest_seq(*place)

    def _find(self, key: Key) -> None:
        """One more, somewhere before the place reached; the last of too many is forgotten, and
        the place reached is where it stood."""
        found = self._found
        at = bisect_left(found, key)
        if at == len(found) or found[at] != key:
            found.insert(at, key)
        if len(found) > FOUND_MAX:
            self._reached = found.pop()

    def _may_overtake(self, message: StoredMessage) -> bool:
        """Whether something that it is late with may stand before the message."""
        if self._late is None:
            return False
        return self._line.sort is not None or message.seq >= self._floor
