"""The recorder: what clients did, what they were told, and what they were given.

A send, an acknowledgement and a commit is *info* (unknown) until its outcome is known: *ok* or
*fail*. What a single receipt proves wrong is noted at once; the rest is judged at the end (check).
"""

from collections import Counter
from collections.abc import Callable

from tests.sim.entries import (
    ATTEMPTS_MAX,
    FAIL,
    INFO,
    LETTER_QUEUES,
    OK,
    OPEN,
    Arrival,
    Receipt,
    Sending,
    Subscribed,
    Transaction,
)

LIMITED = ("queue:orders", "queue:ledger", "sub:audit", "sub:billing")


class Books:
    """See the module. boot: how often the node has booted."""

    def __init__(self, boot: Callable[[], int] = lambda: 0) -> None:
        self.boot = boot
        self.sendings: dict[str, Sending] = {}
        self.receipts: dict[tuple[str, str], Receipt] = {}
        self.transactions: list[Transaction] = []
        self.by_key: dict[object, Transaction] = {}
        self.subscribed: list[Subscribed] = []
        self.ended: set[str] = set()
        self.refused: set[str] = set()
        self.vanished: set[str] = set()
        self.told_lost: set[tuple[str, int]] = set()
        """Clients and messages whose acknowledgement they were told may be lost."""
        self.decided: set[bytes] = set()
        """Packed xids of branches that are to be committed."""
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()
        self._order: dict[tuple[object, ...], int] = {}

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
        self._check_limit(arrival, receipt)
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
        if not (has_failed or is_late or origin in ("queue:jobs", "queue:parts")):
            self.faults.append(f"unexpected: {arrival} is a dead letter without its failures")

    def _check_limit(self, arrival: Arrival, receipt: Receipt) -> None:
        """The node said of so many failures that it has counted them (F-C9)."""
        if arrival.place in LIMITED and receipt.failures_known >= ATTEMPTS_MAX:
            self.faults.append(f"unlimited: {arrival} came after {receipt.failures_known} failures")

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
        return is_first and sending.stream[0].split(" ")[0] not in self.refused

    def _check_order(self, arrival: Arrival, sending: Sending) -> None:
        key = arrival.place, (*sending.stream, sending.color)  # a selector may take red ones first
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

    def committing(self, transaction: Transaction, key: object) -> None:
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
