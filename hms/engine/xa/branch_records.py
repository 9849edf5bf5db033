"""What the log keeps of a branch, and how recovery makes the branch of it again."""

import enum
from collections.abc import Callable

from hms.engine.messages import StoredMessage
from hms.engine.queue.destinations import Queue, Subscription, Topic
from hms.engine.session.deduplication import ProducerMemory
from hms.engine.session.session_objects import Connection, PendingBatch, Producer, Session
from hms.engine.settings import DEAD_LETTER_QUEUE
from hms.engine.state import State
from hms.engine.xa.branch import Branch, BranchState
from hms.records import (
    Ended,
    Heuristic,
    Prepared,
    PreparedBatch,
    Record,
    RecordType,
    decode_ended,
    decode_heuristic,
    decode_prepared,
    ended,
    heuristic,
    prepared,
)

Payload = bytes | memoryview


class Outcome(enum.IntEnum):
    """Why a branch is gone."""

    COMMITTED = 1
    ROLLED_BACK = 2
    FORGOTTEN = 3
    COLD = 4


def stand_in(state: State, producer: Producer) -> Producer:
    """Who sent what a branch held, when the producer itself may be gone; ready to publish."""
    client_uid, destination = producer.session.connection.uid, producer.destination
    if isinstance(destination, Queue) and destination.control.is_gone:
        destination = state.queues[DEAD_LETTER_QUEUE]  # not lost silently (P9)
    made = _producer(client_uid, producer.handle, destination, producer.topic)
    if isinstance(destination, Topic):
        made.node = state.space.tree.node(producer.topic, state.now_ms, is_known=True)
    return made


def _producer(client_uid: int, handle: int, destination: Queue | Topic, topic: str) -> Producer:
    session = Session(Connection(0, client_uid), 0, 0, "transacted")
    made = Producer(session, handle, destination, ProducerMemory())
    made.topic = topic
    return made


def prepared_record(branch: Branch) -> Record:
    """All that a branch did and that outlives the node."""
    sends = [batch for batch in branch.work.sends if batch.is_persistent]
    receipts = [
        (received.place.number, first, last)
        for received in branch.work.received().all()
        if received.place.number
        for first, last in received.spans
    ]
    content = Prepared(
        branch.xid,
        branch.serial,
        branch.prepared_at_ms,
        [_describe(batch) for batch in sends],
        receipts,
    )
    return prepared(content, [batch.pack for batch in sends])


def _describe(batch: PendingBatch) -> PreparedBatch:
    producer = batch.producer
    return PreparedBatch(
        producer.destination.number,
        producer.topic,
        producer.session.connection.uid,
        producer.handle,
        batch.first_id,
        batch.count,
        batch.timestamp_ms,
        len(batch.pack),
    )


def heuristic_record(branch: Branch, *, events: int = 1) -> Record:
    """What an operator made of a branch."""
    is_committed = branch.state is BranchState.COMMITTED
    content = Heuristic(branch.xid, branch.serial, branch.prepared_at_ms, is_committed)
    return heuristic(content, events)


def ended_record(state: State, xid: bytes, outcome: Outcome, *, events: int = 1) -> Record:
    """A branch is gone."""
    return ended(Ended(xid, outcome, state.now_ms), events)


def kept_record(branch: Branch) -> Record:
    """What the log has to know of a branch that it has."""
    if branch.state is BranchState.PREPARED:
        return prepared_record(branch)
    return heuristic_record(branch)


class RecoveredBranches:
    """Takes the records of branches while the log is read; finish() makes the branches."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._branches: dict[bytes, Branch] = {}
        self._receipts: dict[bytes, list[tuple[int, int, int]]] = {}
        self._taken: dict[int, dict[int, Branch]] = {}
        self.handlers: dict[int, Callable[[Payload, int], None]] = {
            RecordType.PREPARED: self._prepared,
            RecordType.ENDED: self._ended,
            RecordType.HEURISTIC: self._heuristic,
        }

    def _prepared(self, payload: Payload, _position: int) -> None:
        content, packs = decode_prepared(payload)
        branch = self._branch(content)
        branch.state = BranchState.PREPARED
        branch.work.sends = [
            self._batch(described, pack)
            for described, pack in zip(content.batches, packs, strict=True)
        ]
        self._receipts[branch.xid] = list(content.receipts)

    def _branch(self, content: Prepared | Heuristic) -> Branch:
        branch = self._branches[content.xid] = Branch(content.xid, 0, content.at_ms)
        branch.serial, branch.prepared_at_ms = content.serial, content.at_ms
        state = self._state
        state.branches.next_serial = max(state.branches.next_serial, content.serial + 1)
        state.now_ms = max(state.now_ms, content.at_ms)
        return branch

    def _batch(self, described: PreparedBatch, pack: memoryview) -> PendingBatch:
        state = self._state
        found = self._destination(described)
        producer = _producer(described.client_uid, described.producer, found, described.topic)
        state.ids.reserved(described.first_message_id + described.count)
        return PendingBatch(
            producer,
            described.first_message_id,
            described.count,
            described.timestamp_ms,
            is_persistent=True,
            pack=memoryview(bytes(pack)),
        )

    def _destination(self, described: PreparedBatch) -> Queue | Topic:
        """Where it was sent to; a queue that has not outlived the node is replaced by the one that
        keeps what nobody else does."""
        if described.topic:
            return self._state.space.numbered(described.destination)
        place = self._state.places.get(described.destination)
        return place if isinstance(place, Queue) else self._state.queues[DEAD_LETTER_QUEUE]

    def _ended(self, payload: Payload, _position: int) -> None:
        content = decode_ended(payload)
        self._branches.pop(content.xid, None)
        self._receipts.pop(content.xid, None)
        self._state.now_ms = max(self._state.now_ms, content.at_ms)
        if content.outcome == Outcome.COMMITTED:
            self._state.branches.remember(content.xid)

    def _heuristic(self, payload: Payload, _position: int) -> None:
        content = decode_heuristic(payload)
        branch = self._branch(content)
        is_committed = content.is_committed
        branch.state = BranchState.COMMITTED if is_committed else BranchState.ROLLED_BACK
        self._receipts.pop(content.xid, None)

    def every(self) -> list[Branch]:
        """Those that the log has so far: without what they have received until they are taken."""
        return list(self._branches.values())

    def read(self) -> None:
        """All records were read: which messages are taken at which place."""
        for branch in self._branches.values():
            for number, first, last in self._receipts.get(branch.xid, ()):
                taken = self._taken.setdefault(number, {})
                taken.update(dict.fromkeys(range(first, last + 1), branch))

    def holds(self, number: int, message_id: int) -> bool:
        """Whether a branch has taken the message at that place."""
        return message_id in self._taken.get(number, ())

    def take(self, place: Queue | Subscription, messages: dict[int, StoredMessage]) -> None:
        """What branches have taken at a place, of all that is there, is out again."""
        for message_id, branch in self._taken.get(place.number, {}).items():
            message = messages.get(message_id)
            if message is not None:
                place.line.take_one(message)
                branch.work.acknowledged.append((place, message))

    def finish(self) -> None:
        """The branches are there again."""
        for branch in self._branches.values():
            size = sum(len(batch.pack) for batch in branch.work.sends)
            self._state.branches.hold(branch, size + 64 * len(branch.work.acknowledged))
