"""The recorder: what clients did, what they were told, and what they were given.

A send, an acknowledgement and a commit is *info* (unknown) until its outcome is known: *ok* or
*fail*. What a single receipt proves wrong is noted at once; the rest is judged at the end (check).
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

INFO, OK, FAIL, OPEN = "info", "ok", "fail", "open"
ATTEMPTS_MAX = 3
LETTER_QUEUES = ("queue:HMS.DLQ", "queue:late")


@dataclass(slots=True, eq=False)
class Transaction:
    """Sends and acknowledgements that take effect together; key: (uid, session, number)."""

    outcome: str = OPEN
    key: tuple[int, int, int] | None = None
    sends: list["Sending"] = field(default_factory=list)
    acknowledged: list["Receipt"] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Sending:
    """A message as its producer sent it. boot: how often the node had booted then; expected: the
    durable subscriptions that surely existed all the while."""

    key: str
    destination: str
    stream: tuple[str, str, int, bool]
    sequence: int
    body: bytes
    is_persistent: bool
    ttl_ms: int
    color: str
    boot: int
    transaction: Transaction | None = None
    outcome: str = INFO
    expected: list["Subscribed"] = field(default_factory=list)

    @property
    def truth(self) -> str:
        """Its outcome, for a transacted one that of the transaction."""
        is_transacted = self.transaction is not None and self.outcome != FAIL
        return self.transaction.outcome if is_transacted else self.outcome


@dataclass(slots=True, eq=False)
class Subscribed:
    """A durable subscription, from the reply to its opening until its end was asked for."""

    place: str
    topic: str
    colors: str
    is_over: bool = False

    def takes(self, sending: Sending) -> bool:
        """Whether the message is for it."""
        return self.topic == sending.destination and sending.color in self.colors


class Arrival(NamedTuple):
    """A message as an application got it. color: "" or the one that the selector asks for."""

    place: str
    message_id: int
    count: int
    body: bytes
    color: str = ""
    is_exclusive: bool = False


@dataclass(slots=True, eq=False)
class Receipt:
    """One message at one place, and what became of it there."""

    place: str
    sending: Sending
    counts: set[int] = field(default_factory=set)
    failures: int = 0
    ids: set[int] = field(default_factory=set)
    acknowledged: str = ""
    transaction: Transaction | None = None
    past: list[Transaction] = field(default_factory=list)

    @property
    def is_settled(self) -> bool:
        """Whether it must not come again."""
        held = self.transaction
        return self.acknowledged == OK or (held is not None and held.outcome == OK)

    @property
    def may_be_settled(self) -> bool:
        """Whether an acknowledgement was tried whose outcome is not known, or it is settled."""
        return bool(self.acknowledged) or any(t.outcome in (OK, INFO) for t in self.past)


class Books:
    """See the module. boot: how often the node has booted."""

    def __init__(self, boot: Callable[[], int] = lambda: 0) -> None:
        self.boot = boot
        self.sendings: dict[str, Sending] = {}
        self.receipts: dict[tuple[str, str], Receipt] = {}
        self.transactions: list[Transaction] = []
        self.by_key: dict[tuple[int, int, int], Transaction] = {}
        self.subscribed: list[Subscribed] = []
        self.ended: set[str] = set()
        self.refused: set[str] = set()
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()
        self._order: dict[tuple[str, tuple[str, str, int, bool]], int] = {}

    # ---- sending

    def invoke(self, sending: Sending) -> None:
        """It is about to be sent."""
        self.sendings[sending.key] = sending
        self.counts["invoked"] += 1
        if sending.transaction is not None:
            sending.transaction.sends.append(sending)
        if sending.destination.startswith("topic:"):
            sending.expected = [
                one for one in self.subscribed if not one.is_over and one.takes(sending)
            ]

    def sent(self, sending: Sending, outcome: str) -> None:
        """The node confirmed or refused it."""
        sending.outcome = outcome
        self.counts[f"sent {outcome}"] += 1
        sending.expected = [one for one in sending.expected if not one.is_over]

    # ---- receiving

    def received(self, arrival: Arrival) -> Receipt:
        """An application has a message; what is wrong with that is noted."""
        self.counts["received"] += 1
        key = arrival.body.split(b" ", 1)[0].decode("ascii", "replace")
        sending = self.sendings.get(key)
        if sending is None or sending.body != arrival.body:
            self.faults.append(f"unexpected: {arrival} was never sent")
            sending = Sending(key, "", ("", "", 0, True), 0, b"", *(True, 0, "", 0))
        receipt = self.receipts.get((arrival.place, key))
        is_again = receipt is not None and self._is_sent_again(arrival, receipt)
        if receipt is None or is_again:
            receipt = self.receipts[arrival.place, key] = Receipt(arrival.place, sending)
        self._check_right(arrival, sending)
        self._check_repeat(arrival, receipt)
        is_first = arrival.count == 1 and not is_again
        if arrival.is_exclusive and is_first and self._is_ordered(sending):
            self._check_order(arrival, sending)
        receipt.counts.add(arrival.count)
        receipt.ids.add(arrival.message_id)
        return receipt

    def _is_sent_again(self, arrival: Arrival, receipt: Receipt) -> bool:
        """A send that is not persistent and was not confirmed is repeated after a crash; the
        node that forgot the first one cannot know. Counted, and reported."""
        is_another = bool(receipt.ids) and arrival.message_id not in receipt.ids
        if not is_another or receipt.sending.is_persistent or receipt.sending.boot == self.boot():
            return False
        self.counts["doubled, not persistent"] += 1
        return True

    def _check_right(self, arrival: Arrival, sending: Sending) -> None:
        place, _, origin = arrival.place.partition("<")
        if sending.truth in (FAIL, OPEN):
            self.faults.append(f"unexpected: {arrival}, whose sending is {sending.truth}")
        if arrival.color and sending.color != arrival.color:
            self.faults.append(f"unexpected: {arrival} does not match the selector")
        if place in LETTER_QUEUES:
            self._check_letter(arrival, sending, origin)
        elif place.startswith("queue:") and sending.destination not in ("", place):
            self.faults.append(f"unexpected: {arrival} was sent to {sending.destination}")

    def _check_letter(self, arrival: Arrival, sending: Sending, origin: str) -> None:
        before = self.receipts.get((origin, sending.key))
        has_failed = before is not None and before.failures >= ATTEMPTS_MAX
        is_late = sending.ttl_ms > 0 and arrival.place.startswith("queue:late")
        if not (has_failed or is_late or origin == "queue:jobs"):
            self.faults.append(f"unexpected: {arrival} is a dead letter without its failures")

    def _check_repeat(self, arrival: Arrival, receipt: Receipt) -> None:
        if receipt.is_settled:
            self.faults.append(f"duplicated: {arrival} came again after its acknowledgement")
        if receipt.ids and arrival.message_id not in receipt.ids:
            self.faults.append(f"duplicated: {arrival} is stored twice, as {receipt.ids} too")
        elif arrival.count in receipt.counts:
            # A smaller count is an earlier delivery that its client took late, from a connection
            # that the node had given up already: neither of them can know of the other.
            self.faults.append(f"unflagged: {arrival} came before, with {receipt.counts}")

    def _is_ordered(self, sending: Sending) -> bool:
        """What is not persistent and older than the last boot was sent again, behind others."""
        is_first = sending.is_persistent or sending.boot == self.boot()
        return is_first and sending.stream[0] not in self.refused

    def _check_order(self, arrival: Arrival, sending: Sending) -> None:
        key = arrival.place, sending.stream
        if sending.sequence <= self._order.get(key, 0):
            self.faults.append(f"reordered: {arrival} after number {self._order[key]}")
        self._order[key] = max(sending.sequence, self._order.get(key, 0))

    # ---- settling

    def acknowledging(self, receipt: Receipt, transaction: Transaction | None = None) -> None:
        """An acknowledgement is about to be said."""
        if transaction is None:
            receipt.acknowledged = receipt.acknowledged or INFO
            return
        receipt.past.append(transaction)
        receipt.transaction = transaction
        transaction.acknowledged.append(receipt)

    def acknowledged(self, receipt: Receipt) -> None:
        """The node said that it is durable."""
        receipt.acknowledged = OK
        self.counts["acknowledged ok"] += 1

    def begin(self) -> Transaction:
        """A transaction begins."""
        self.transactions.append(Transaction())
        return self.transactions[-1]

    def committing(self, transaction: Transaction, key: tuple[int, int, int]) -> None:
        """Its commit is about to be asked for."""
        transaction.key, transaction.outcome = key, INFO
        self.by_key[key] = transaction

    def ended_as(self, transaction: Transaction, outcome: str) -> None:
        """The client knows the outcome; what was rolled back by itself counts as a failure."""
        transaction.outcome = outcome
        self.counts[f"transactions {outcome}"] += 1

    # ---- durable subscriptions

    def subscribe(self, place: str, topic: str, color: str) -> None:
        """The node said that the subscription exists."""
        if not any(one.place == place and not one.is_over for one in self.subscribed):
            self.subscribed.append(Subscribed(place, topic, color or "red blue none"))

    def unsubscribe(self, place: str) -> None:
        """Its end is about to be asked for."""
        self.ended.add(place)
        for one in self.subscribed:
            if one.place == place:
                one.is_over = True
