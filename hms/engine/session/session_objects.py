"""What a client has open: connection, sessions, producers, consumers."""

from collections.abc import Sequence
from itertools import islice
from typing import Any, Protocol

import msgspec

from hms.engine.effects import Effects
from hms.engine.flow.bytes_in_flight import BytesInFlight
from hms.engine.flow.shares import Owner
from hms.engine.flow.user_rate import UserRate
from hms.engine.messages import ReadyCopy, StoredMessage
from hms.engine.queue.destinations import Queue, Subscription, Topic
from hms.engine.queue.incoming import Incoming
from hms.engine.selector import Selector
from hms.engine.selector.selector_fields import selector_view
from hms.engine.session.deduplication import TAKEN_BYTES, ProducerMemory
from hms.engine.session.receipts import Receipts
from hms.engine.text_sizes import text_bytes
from hms.engine.topic import TopicNode
from hms.engine.topic.answers import Answers
from hms.records import Encoded, Record
from hms.wire.packed_messages import ROW


class Search(Protocol):
    """Looks for what is retained, in slices; see topic/retained_search.py."""

    handle: int
    """Of the consumer for which it does."""
    number: int
    """Of the place that gets it in the log; 0 when the log does not know it."""

    def go_on(self, fx: Effects) -> bool:
        """Look at some more; whether there may be more yet."""

    def result(self, fx: Effects) -> Sequence[ReadyCopy]:
        """Copies of what was found."""

    def close(self) -> None:
        """End it without a result."""


class Connection:
    """A client that said hello. number: the node's; uid: the client's own, over reconnects."""

    def __init__(self, number: int, uid: int, client_id: str = "", user: str = "") -> None:
        self.request_timeout_ms = 0
        """How long its client waits for an answer; 0: it did not say."""
        self.number = number
        self.uid = uid
        self.client_id = client_id
        self.user = user
        self.sender: dict[str, str] = {}
        """What its messages say of who sent them; of an open node, or without sender_identity,
        nothing."""
        self.sessions: dict[int, Session] = {}
        self.producers: dict[int, Producer] = {}
        self.consumers: dict[int, Consumer] = {}
        self.watched: dict[tuple[str, str], None] = {}
        """Destinations, by kind and name, of whose consumers it is told."""
        self.holds: list[Queue | Subscription] = []
        """Places that a command of its operator keeps from consumers (held_places.py)."""
        self.files_shown: frozenset[str] = frozenset()
        """Files of the messages of the last page that it exports: it may read them."""
        self.rate: UserRate | None = None
        """What its user may send in a second, together with its other connections."""
        self.in_flight: BytesInFlight | None = None
        """What its user may have in flight, together with its other connections."""
        self.search: Search | None = None
        """For the consumer that it opens now."""

    @property
    def owner(self) -> Owner:
        """Whose share of the node's limits it takes."""
        return self.client_id or self.uid


class Work:
    """What a transaction holds until it ends: of a session, or of a branch that several sessions
    share. is_over: it was rolled back, nothing more may join it. worked_at_ms: when something was
    sent or received in it last; rolled_back: why a session's transaction has no effect any more,
    "" while it may have one (idle_transactions.py)."""

    __slots__ = (
        "_demand_count",
        "_demands",
        "acknowledged",
        "asked_count",
        "delays_ms",
        "is_over",
        "late_steps",
        "late_version",
        "published",
        "ready_count",
        "receipts",
        "remade_count",
        "rolled_back",
        "sends",
        "size_bytes",
        "steps",
        "worked_at_ms",
    )

    def __init__(self, *, is_over: bool = False) -> None:
        self.sends: list[PendingBatch] = []
        self.acknowledged: list[tuple[Queue | Subscription, StoredMessage]] = []
        """Acknowledged in it, so still out."""
        self.receipts: Receipts | None = None
        """Of these, what was made ready for a commit."""
        self.ready_count = self.asked_count = 0
        """So many batches, from the first one on, are ready as well, and selectors were asked."""
        self.published: list[PublicationRun] = []
        """What of it is ready to be published (topic/publication_run.py)."""
        self._demands: dict[Producer, tuple[int, int]] = {}
        self._demand_count = 0
        """Of so many batches."""
        self.remade_count = 0
        """How often some of that was made anew, as subscriptions had changed."""
        self.late_steps = self.late_version = 0
        """What its commit takes for what is not, beside what was counted when it came; and of
        which subscriptions that is."""
        self.delays_ms: dict[tuple[int, int], int] = {}
        """How long they wait after a rollback whose consumer says so itself, by the identity of
        their place and by their id."""
        self.size_bytes = 0
        self.steps = 0
        """What its commit takes for what it sends, as queue_send.py counts it."""
        self.is_over = is_over
        self.worked_at_ms = 0
        self.rolled_back = ""

    @property
    def is_any(self) -> bool:
        """Whether a commit would change anything."""
        return bool(self.sends or self.acknowledged)

    def demands(self) -> dict["Producer", tuple[int, int]]:
        """How many messages each producer has sent in it, with the bytes of their heads and bodies.
        What is known already is not counted again: there may be 100,000 batches of a few."""
        for batch in islice(self.sends, self._demand_count, None):
            count, size = self._demands.get(batch.producer, (0, 0))
            self._demands[batch.producer] = count + batch.count, size + size_of_batch(batch)
        self._demand_count = len(self.sends)
        return self._demands

    def received(self) -> Receipts:
        """What it acknowledged, by place."""
        receipts = self.receipts
        if receipts is None or not receipts.is_of(self.acknowledged):
            receipts = self.receipts = Receipts(self.acknowledged)
        return receipts

    def clear(self) -> None:
        """It has ended, and what comes belongs to the next one."""
        self.sends, self.acknowledged, self.size_bytes, self.steps = [], [], 0, 0
        self.delays_ms, self.receipts = {}, None
        self._demands, self._demand_count = {}, 0
        self.unready()

    def unready(self) -> None:
        """It is not committed yet: nothing that it sends is ready."""
        for batch in islice(self.sends, max(self.ready_count, self.asked_count)):
            batch.unready()
        self.ready_count = self.asked_count = self.remade_count = 0
        self.late_steps = self.late_version = 0
        self.published = []


class Session:
    """A unit of work (F-A4). ack_mode 3 is NONE: what is delivered counts as acknowledged.

    is_xa: it can work in branches of distributed transactions; is_transacted holds while it does,
    and `work` is then that of the branch whose packed xid is `xid` (F-B6).
    """

    def __init__(self, connection: Connection, handle: int, ack_mode: int, kind: str) -> None:
        self.connection = connection
        self.handle = handle
        self.ack_mode = ack_mode
        self.is_transacted = kind == "transacted"
        self.is_asynchronous = kind == "asynchronous"
        self.is_xa = kind == "xa"
        self.consumers: list[Consumer] = []
        self.work = Work()
        self.xid = b""
        self.is_remembered = True
        self.withdrawn = 0
        """Commits up to this number that did not take effect never will."""
        """Whether its last commit is known for certain; see Memories."""


def producer_bytes(topic: str, batches_max: int) -> int:
    """What a producer takes in memory at most; topic: where it publishes, "" for one of a queue;
    batches_max: so many of its last are remembered."""
    return PRODUCER_BYTES + TAKEN_BYTES * batches_max + text_bytes(topic)


class Producer:
    """Sends to one destination."""

    def __init__(
        self, session: Session, handle: int, destination: Queue | Topic, memory: ProducerMemory
    ) -> None:
        self.session = session
        self.handle = handle
        self.destination = destination
        self.memory = memory
        self.topic = ""
        self.node: TopicNode[StoredMessage] | None = None
        """Where it publishes, of a topic's producer."""
        self.memory_bytes = 0
        """What it takes in memory at most, once it is counted."""
        self.schedule_handle = 0
        """By which its schedules are numbered; 0: it made none."""
        self.answers: Answers | None = None
        """What selectors say of the send that comes next."""
        self.looks = 0
        """So many slices of its audience were made for the send that comes next."""

    @property
    def key(self) -> tuple[str, str]:
        """What its sends stand in line for."""
        return ("topic", self.topic) if self.topic else ("queue", self.destination.name)


PRODUCER_BYTES = CONSUMER_BYTES = 600
SCANNING_BYTES = 3000
"""Of a queue's consumer with a selector: what it remembers of the queue."""
NO_WINDOW = 1 << 62
"""Of a consumer whose bytes nobody counts."""


def consumer_bytes(name: str, listener: str, selector: Selector | None) -> int:
    """What a consumer takes in memory at most; selector: of a queue's."""
    size = CONSUMER_BYTES + text_bytes(name) + text_bytes(listener)
    return size if selector is None else size + SCANNING_BYTES + selector.memory_bytes


class Consumer:
    """Receives from one place. credit: how many more it may be sent; window_bytes: how many bytes
    it may have been sent that its application has not taken, the last message not counted; room:
    what is left of them. epoch: see the protocol."""

    def __init__(
        self,
        session: Session,
        handle: int,
        place: Queue | Subscription,
        credit: int,
        window_bytes: int = NO_WINDOW,
    ) -> None:
        self.session = session
        self.handle = handle
        self.place = place
        self.credit = credit
        self.credit_at_open = credit
        self.room_bytes = self.window_bytes = window_bytes
        self.epoch = 0
        self.name = ""
        self.listener = ""
        self.redelivery_delay_ms = 0
        self.priority = 0
        """Who has a higher one, and room, gets messages first."""
        self.selector: Selector | None = None
        self.out: dict[int, StoredMessage] = {}
        self.out_bytes = 0
        self.seen: dict[int, None] = {}
        """Ids that the application has seen, told just before they come back with all the rest."""
        self.has_left = False
        """Closed, and here only for what its application may still acknowledge (departures.py)."""

    @property
    def memory_bytes(self) -> int:
        """What it takes in memory at most, beside its subscription."""
        return consumer_bytes(self.name, self.listener, self.selector)

    @property
    def connection(self) -> Connection:
        """Whose it is."""
        return self.session.connection

    def wants(self, message: StoredMessage) -> bool:
        """Whether its selector lets the message through."""
        selector = self.selector
        if selector is None:
            return True
        return selector.matches(selector_view(message, selector.names)) is True


class Run(Protocol):
    """Batches that a commit stores as one; see queue/ready_run.py."""

    queue: Queue
    first_id: int
    """Of the first message of the first batch."""
    messages: list[StoredMessage]

    def store(self, state: Any) -> Encoded | None:
        """Their messages begin to wait; their records, None when the log has none."""


class PublicationRun(Protocol):
    """Batches that a commit publishes as one; see topic/publication_run.py."""

    batches: list["PendingBatch"]
    messages: list[StoredMessage]
    record_bytes: int
    """What they take in the record of their transaction."""
    waiting_bytes: int
    """What their messages take where they wait, of all places together."""

    def is_known(self, state: Any) -> bool:
        """Whether is_current() is known without a look."""

    def check_steps(self) -> int:
        """What is_current() takes."""

    def is_current(self, state: Any) -> bool:
        """Whether those get it who were found for it."""

    def drop(self) -> None:
        """It is made anew."""

    def store(self, state: Any, fx: Effects) -> list[Record | Encoded]:
        """They are published; their records."""


class PendingBatch(msgspec.Struct):
    """A batch that was taken, and that a transaction may hold until it commits. incoming, made:
    what was read of it, and its messages, when they were made ready before the commit; run: where
    all of that is, together with others (queue/ready_run.py)."""

    producer: Producer
    first_id: int
    count: int
    timestamp_ms: int
    is_persistent: bool
    pack: memoryview
    record_bytes: int = 0
    """What it takes in a record of its transaction, once somebody has asked; to a topic that is
    another number each time."""
    incoming: Incoming | None = None
    made: list[StoredMessage] | None = None
    run: Run | None = None
    answers: Answers | None = None
    """What selectors say of it (topic/answers.py)."""
    steps: int = 0
    """What its commit was counted to take for it when it came, beside its messages."""
    published: PublicationRun | None = None
    """What it is published with."""

    def unready(self) -> None:
        """The commit does not come yet."""
        self.incoming = self.made = self.run = self.answers = self.published = None


def size_of_batch(batch: PendingBatch) -> int:
    """Heads and bodies of a batch, without its rows."""
    return len(batch.pack) - ROW.size * batch.count
