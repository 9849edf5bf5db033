"""The checker: the books against the promises, after everything was drained."""

from collections import Counter

from hms.records import Cause
from tests.sim.books import Books
from tests.sim.entries import FAIL, INFO, LETTER_QUEUES, OK, Receipt, Sending, Transaction
from tests.sim.ledger import Ledger

LIMITED_PLACE = "queue:gauge"
"""Its oldest messages are removed when it is full."""
COLD_PLACES = ("queue:scratch", "sub:flash")


class Check:
    """One run's verdict: faults, each beginning with the count that it belongs to."""

    def __init__(self, books: Books, ledger: Ledger, boots: int) -> None:
        self._books, self._ledger, self._boots = books, ledger, boots
        self.faults = [*books.faults, *ledger.faults]
        self.counts = Counter(books.counts)
        self._letters: dict[tuple[str, str], list[Receipt]] = {}
        for (place, key), receipt in books.receipts.items():
            name, _, origin = place.partition("<")
            if name in LETTER_QUEUES:
                self._letters.setdefault((origin, key), []).append(receipt)

    def run(self) -> list[str]:
        """All faults."""
        for sending in self._books.sendings.values():
            self._sending(sending)
        for receipt in self._books.receipts.values():
            self._is_told(receipt)
            if receipt.sending.truth == FAIL and receipt.sending.destination:
                self.faults.append(
                    f"unexpected: {receipt.sending.key}, refused or rolled back, came"
                )
        self._transactions()
        self._accounts()
        return self.faults

    # ---- lost

    def _sending(self, sending: Sending) -> None:
        if self._ledger.stored[sending.key] > 1:
            self.faults.append(f"duplicated: {sending.key} stands in the log twice")
        if self._ledger.stored[sending.key] and sending.truth == FAIL:
            self.faults.append(f"unexpected: {sending.key}, refused or rolled back, is in the log")
        if sending.truth != OK:
            if sending.truth == INFO and any(k == sending.key for _, k in self._books.receipts):
                self.counts["recovered"] += 1
            return
        places = [one.place for one in sending.expected if not one.is_over]
        if sending.destination.startswith("queue:"):
            places = [sending.destination]
        for place in places:
            if not (self._may_be_gone(sending, place) or self._has_arrived(sending, place)):
                self.faults.append(f"lost: {sending.key} of {sending.destination} at {place}")

    def _may_be_gone(self, sending: Sending, place: str) -> bool:
        """Whether a boot may have taken it away, or the subscription before it came."""
        if place == "sub:flash":
            return True
        is_volatile = not sending.is_persistent or place in COLD_PLACES
        return is_volatile and sending.boot != self._boots

    def _has_arrived(self, sending: Sending, place: str) -> bool:
        receipt = self._books.receipts.get((place, sending.key))
        if receipt is not None and receipt.may_be_settled:
            return True
        if any(letter.may_be_settled for letter in self._letters.get((place, sending.key), ())):
            return True
        fates = self._ledger.fates.get((place, sending.key), [])
        if place == LIMITED_PLACE and not sending.is_persistent:
            return True  # the log does not say what the limit removed of these
        if any(cause is Cause.LIMIT for cause, _ in fates):
            return True
        if not sending.ttl_ms:
            return False
        return not sending.is_persistent or any(cause is Cause.EXPIRED for cause, _ in fates)

    def _is_told(self, receipt: Receipt) -> None:
        """Who acknowledged a message that came again was told so (F-K9)."""
        last = max(receipt.counts)
        for taken in receipt.unanswered:
            key = taken.client, taken.message_id
            is_told = key in self._books.told_lost or taken.client in self._books.vanished
            if taken.count < last and not is_told:
                self.faults.append(f"untold: {taken} of {receipt.place} came again, {last}")

    # ---- torn

    def _transactions(self) -> None:
        stood = {key: (sends, acks) for key, sends, acks in self._ledger.groups}
        if len(stood) != len(self._ledger.groups):
            self.faults.append("torn: a transaction stands in the log twice")
        for transaction in self._books.transactions:
            self._transaction(transaction, stood.get(transaction.key) if transaction.key else None)
        for key in stood:
            if key not in self._books.by_key:
                self.faults.append(f"unexpected: commit {key} was never asked for")

    def _transaction(
        self, transaction: Transaction, stood: tuple[set[str], set[tuple[str, str]]] | None
    ) -> None:
        sends = {one.key for one in transaction.sends if one.is_persistent and one.outcome != FAIL}
        acks = {
            (one.place.partition("<")[0], one.sending.key)
            for one in transaction.acknowledged
            if one.sending.is_persistent and not one.place.startswith("passing:")
        }
        if stood is None:
            if transaction.outcome == OK and (sends or acks):
                self.faults.append(f"torn: commit {transaction.key} is ok, and not in the log")
        elif transaction.outcome == FAIL:
            self.faults.append(f"torn: commit {transaction.key} failed, and is in the log")
        elif stood != (sends, acks):
            self.faults.append(f"torn: commit {transaction.key} is {stood}, not {(sends, acks)}")
        if transaction.outcome == INFO:
            self._is_whole(transaction)

    def _is_whole(self, transaction: Transaction) -> None:
        """Of a transaction whose outcome is not known all or nothing may be seen."""
        seen = {key for _, key in self._books.receipts}
        sends = [one for one in transaction.sends if one.destination.startswith("queue:")]
        sends = [one for one in sends if one.is_persistent and one.outcome != FAIL]
        sends = [one for one in sends if not one.ttl_ms and one.destination not in COLD_PLACES]
        shown = [one.key in seen for one in sends]
        if any(shown) and not all(shown):
            self.faults.append(f"torn: of {transaction.key} came {shown}")

    # ---- unaccounted

    def _accounts(self) -> None:
        for at, key in self._ledger.here.items():
            self.faults.append(f"leftover: {key} is at {at} in the log")
        for (place, key), fates in self._ledger.fates.items():
            sending = self._books.sendings.get(key)
            if sending is None:
                self.faults.append(f"unexpected: {key} is in the log and was never sent")
            elif len(fates) > 1 and place not in LETTER_QUEUES:
                self.faults.append(f"unaccounted: {key} left {place} as {fates}")
            else:
                for cause, at_ms in fates:
                    self._fate(place, sending, cause, at_ms)

    def _fate(self, place: str, sending: Sending, cause: Cause, at_ms: int) -> None:
        self.counts[f"left {cause.name}"] += 1
        if cause is Cause.NONE:
            is_right = self._was_acknowledged(place, sending.key)
        elif cause is Cause.EXPIRED:
            sent_at = self._ledger.sent_at[sending.key]
            is_right = sending.ttl_ms > 0 and sent_at + sending.ttl_ms <= at_ms
        elif cause is Cause.DEAD_LETTERED:
            is_right = bool(self._letters.get((place, sending.key)))
        elif cause is Cause.LIMIT:
            is_right = place == LIMITED_PLACE
        elif cause in (Cause.REPLACED, Cause.CLEARED):
            is_right = place == "retained:HMS.RETAINED"
        elif cause is Cause.COLD:
            is_right = place in COLD_PLACES
        else:
            is_right = cause is Cause.UNSUBSCRIBED and place in self._books.ended
        if not is_right:
            self.faults.append(f"unaccounted: {sending.key} left {place} as {cause.name}")

    def _was_acknowledged(self, place: str, key: str) -> bool:
        receipts = [self._books.receipts.get((place, key))]
        if place in LETTER_QUEUES:
            receipts = [
                receipt
                for (at, other), receipt in self._books.receipts.items()
                if other == key and at.startswith(place)
            ]
        return any(receipt is not None and receipt.may_be_settled for receipt in receipts)
