"""What stands in the books: sendings, transactions, receipts, subscriptions."""

from dataclasses import dataclass, field
from typing import NamedTuple

from hms.engine.topic import Pattern

INFO, OK, FAIL, OPEN = "info", "ok", "fail", "open"
ATTEMPTS_MAX = 3
LETTER_QUEUES = ("queue:HMS.DLQ", "queue:late")


@dataclass(slots=True, eq=False)
class Transaction:
    """Sends and acknowledgements that take effect together; key: (uid, session, number),
    or the packed xid of a branch."""

    outcome: str = OPEN
    key: object = None
    sends: list["Sending"] = field(default_factory=list)
    acknowledged: list["Receipt"] = field(default_factory=list)

    @property
    def has_work(self) -> bool:
        """Whether its commit changes anything; what was refused is not in it."""
        return bool(self.acknowledged) or any(one.outcome != FAIL for one in self.sends)


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
    due_ms: int = 0
    """Before which time it must come to nobody."""
    transaction: Transaction | None = None
    outcome: str = INFO
    expected: list["Subscribed"] = field(default_factory=list)

    @property
    def is_poison(self) -> bool:
        """Applications that can give it back do, until it is a dead letter."""
        return self.sequence % 7 == 0

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
        kind, _, topic = sending.destination.partition(":")
        wanted = Pattern(self.topic.removeprefix("topic:"))
        return kind == "topic" and wanted.matches(topic) and sending.color in self.colors


class Arrival(NamedTuple):
    """A message as an application got it. color: "" or the one that the selector asks for."""

    place: str
    message_id: int
    count: int
    body: bytes
    color: str = ""
    is_exclusive: bool = False


class Taken(NamedTuple):
    """A message that a client took and acknowledged without waiting for an answer."""

    client: str
    message_id: int
    count: int


@dataclass(slots=True, eq=False)
class Receipt:
    """One message at one place, and what became of it there."""

    place: str
    sending: Sending
    counts: set[int] = field(default_factory=set)
    failures: int = 0
    failures_known: int = 0
    ids: set[int] = field(default_factory=set)
    acknowledged: str = ""
    transaction: Transaction | None = None
    past: list[Transaction] = field(default_factory=list)
    unanswered: list[Taken] = field(default_factory=list)

    @property
    def is_settled(self) -> bool:
        """Whether it must not come again."""
        held = self.transaction
        return self.acknowledged == OK or (held is not None and held.outcome == OK)

    @property
    def may_be_settled(self) -> bool:
        """Whether an acknowledgement was tried whose outcome is not known, or it is settled."""
        return bool(self.acknowledged) or any(t.outcome in (OK, INFO) for t in self.past)
