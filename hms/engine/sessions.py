"""What a client has open: connection, sessions, producers, consumers."""

from typing import TYPE_CHECKING

from hms.engine.messages import StoredMessage, selector_view
from hms.engine.numbering import ProducerMemory
from hms.engine.selector import Selector
from hms.engine.topics import TopicNode

if TYPE_CHECKING:
    from hms.engine.places import Queue, Subscription, Topic


class Connection:
    """A client that said hello. number: the node's; uid: the client's own, over reconnects."""

    def __init__(self, number: int, uid: int, client_id: str = "", user: str = "") -> None:
        self.number = number
        self.uid = uid
        self.client_id = client_id
        self.user = user
        self.sessions: dict[int, Session] = {}
        self.producers: dict[int, Producer] = {}
        self.consumers: dict[int, Consumer] = {}
        self.watched: dict[tuple[str, str], None] = {}
        """Destinations, by kind and name, of whose consumers it is told."""


class Session:
    """A unit of work (F-A4). ack_mode 3 is NONE: what is delivered counts as acknowledged."""

    def __init__(self, connection: Connection, handle: int, ack_mode: int, kind: str) -> None:
        self.connection = connection
        self.handle = handle
        self.ack_mode = ack_mode
        self.is_transacted = kind == "transacted"
        self.is_asynchronous = kind == "asynchronous"
        self.consumers: list[Consumer] = []
        self.pending_sends: list[PendingBatch] = []
        self.pending_bytes = 0
        self.acknowledged: list[tuple[Queue | Subscription, StoredMessage]] = []
        """In a transaction: acknowledged in it, so still out."""

    @property
    def has_work(self) -> bool:
        """Whether a commit would change anything."""
        return bool(self.pending_sends or self.acknowledged)


class Producer:
    """Sends to one destination."""

    def __init__(
        self, session: Session, handle: int, destination: "Queue | Topic", memory: ProducerMemory
    ) -> None:
        self.session = session
        self.handle = handle
        self.destination = destination
        self.memory = memory
        self.topic = ""
        self.node: TopicNode[StoredMessage] | None = None
        """Where it publishes, of a topic's producer."""


class Consumer:
    """Receives from one place. credit: how many more may be out; epoch: see the protocol."""

    def __init__(
        self, session: Session, handle: int, place: "Queue | Subscription", credit: int
    ) -> None:
        self.session = session
        self.handle = handle
        self.place = place
        self.credit = credit
        self.credit_at_open = credit
        self.epoch = 0
        self.name = ""
        self.listener = ""
        self.redelivery_delay_ms = 0
        self.selector: Selector | None = None
        self.out: dict[int, StoredMessage] = {}
        self.out_bytes = 0

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


class PendingBatch:
    """A batch that a transaction holds until it commits."""

    __slots__ = ("count", "first_id", "is_persistent", "pack", "producer", "timestamp_ms")

    def __init__(
        self,
        producer: Producer,
        first_id: int,
        count: int,
        timestamp_ms: int,
        is_persistent: bool,
        pack: memoryview,
    ) -> None:
        self.producer = producer
        self.first_id = first_id
        self.count = count
        self.timestamp_ms = timestamp_ms
        self.is_persistent = is_persistent
        self.pack = pack
