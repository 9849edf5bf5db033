"""Publication runs: what a transaction publishes, made ready for its commit's one record.

A commit of 4,500 batches to a topic asked for the audience of each, made its record and put it on
its way: 0.1 s under one hold of the lock, and 4 s where 10,000 subscriptions had selectors. Before
it slices do that for consecutive batches together, a run; what is known at the commit only are the
places in the order of arrival, which are put in then. A run counts as long as its audiences are
what they were: commit_some() of the engine makes those anew that are not, and the commit follows
under the same hold of the lock.
"""

from collections.abc import Mapping, Sequence
from itertools import islice

from hms.engine.effects import Effects
from hms.engine.groups.scan_slices import LOOK_STEPS
from hms.engine.log.live_index import offsets_of
from hms.engine.messages import OF_COMMIT, StoredMessage, make_messages, sizes_of
from hms.engine.queue.destinations import Subscription, Topic
from hms.engine.queue.incoming import FILES, ORDERED, Incoming
from hms.engine.queue.queue_send import read_batch, steps_of
from hms.engine.session.session_objects import PendingBatch, Work
from hms.engine.session.session_objects import PublicationRun as ReadyRun
from hms.engine.state import State
from hms.engine.topic.asking import ask_batch
from hms.engine.topic.audience import retained_at
from hms.engine.topic.publication import FanOut, known_of, record_of_batch, stamped_for
from hms.engine.topic.recipients import Audience
from hms.engine.topic.retention import retain
from hms.engine.topic.spreading import begin_spreads
from hms.engine.topic.spreads import Part, Spread
from hms.records import MESSAGES_PER_BATCH_MAX, Encoded, Record, encode_part, put_first_seqs
from hms.wire.packed_messages import slice_payloads

__all__ = ["PublicationRun", "ready_publications"]

BATCH_STEPS, PART_STEPS = 80, 4
"""What it takes to make a batch ready, and what a part of its subscriptions gets of it."""
AUDIENCES_PER_STEP = 16
"""So many subscriptions of an audience are compared in a step."""
REMADE_MAX = 4
"""After so many times nobody may subscribe before the commit."""


def ready_publications(state: State, work: Work, fx: Effects, *, is_much: bool) -> bool:
    """Before a commit, when what goes to queues is ready: a slice of what it publishes; whether it
    has to come again. is_much: more than selectors are to be asked."""
    steps = _check_some(state, work, LOOK_STEPS)
    if _is_too_much(state, work):
        return False
    run: PublicationRun | None = None
    for batch in islice(work.sends, work.asked_count, None):
        if steps <= 0:
            break
        if isinstance(batch.producer.destination, Topic) and batch.published is None:
            incoming = read_batch(batch)
            steps = ask_batch(state, batch, incoming, steps)
            if steps <= 0:
                break
            if not is_much or _is_late(state, batch, incoming):
                work.late_steps += steps_of(state, batch.producer, incoming) - batch.steps
            else:
                if run is None or not run.may_take(batch):
                    _ended(work, run)
                    run = PublicationRun(is_persistent=batch.is_persistent)
                steps -= run.add(state, batch, incoming, fx)
        work.asked_count += 1
        steps -= 1
    _ended(work, run)
    return steps < LOOK_STEPS // 2


def _check_some(state: State, work: Work, steps: int) -> int:
    """What is not as it was is made anew; how many of the steps are left."""
    version = state.space.version
    stale = list[ReadyRun]()
    for run in work.published:
        if steps <= 0:
            break
        if run.is_known(state):
            continue
        steps -= run.check_steps()
        if not run.is_current(state):
            stale.append(run)
    for run in stale:
        run.drop()
        work.published.remove(run)
    if stale or (work.late_steps and work.late_version != version):
        work.remade_count += 1
        work.asked_count = work.late_steps = 0
    work.late_version = version
    if work.remade_count > REMADE_MAX:
        state.space.hold_still(work, state.now_ms)
    return steps


def _ended(work: Work, run: "PublicationRun | None") -> None:
    if run is not None:
        run.end()
        work.published.append(run)


def _is_too_much(state: State, work: Work) -> bool:
    """Whether its commit is refused as it is; see check_commit()."""
    settings = state.settings
    waiting = sum([run.waiting_bytes for run in work.published])
    recorded = sum([run.record_bytes for run in work.published])
    is_wide = waiting > settings.memory_bytes_max
    return is_wide or recorded > settings.transaction_bytes_max


def _is_late(state: State, batch: PendingBatch, incoming: Incoming) -> bool:
    """Whether what becomes of a batch is known at its commit only, or is done there at once."""
    audience = state.space.audience(batch.producer.topic, state.now_ms)
    return audience.is_late or bool(incoming.uses & (FILES | ORDERED))


class PublicationRun:
    """Batches to topics, one behind the other, all of which the log has, or none."""

    __slots__ = (
        *("_audiences", "_data", "_firsts", "_held", "_is_persistent", "_joined", "_last"),
        *("_lines", "_offsets", "_parts", "_retained", "_spreads", "_version", "batches"),
        *("messages", "missed", "record_bytes", "waiting_bytes", "withheld"),
    )

    def __init__(self, *, is_persistent: bool) -> None:
        self._is_persistent = is_persistent
        self.batches: list[PendingBatch] = []
        self.messages: list[StoredMessage] = []
        self.waiting_bytes = 0
        """What its messages take where they wait, of all places together."""
        self.record_bytes = 0
        """What it takes in its transaction's record."""
        self.missed: list[tuple[Subscription, int]] = []
        self.withheld: list[tuple[Subscription, int]] = []
        self._audiences: dict[str, Audience] = {}
        """By topic, those that were asked for."""
        self._version = 0
        self._data, self._parts = bytearray(), list[bytes]()
        self._retained: list[tuple[str, StoredMessage]] = []
        """What its topics retain from now on."""
        self._firsts: list[tuple[int, int]] = []
        """Of each batch: where its record begins, and how many messages are before it."""
        self._held: list[StoredMessage] = []
        self._offsets: list[int] = []
        """Messages that the log has to keep, and where each of them begins."""
        self._spreads: list[Spread] = []
        self._last: tuple[Audience, int] | None = None
        """What the last of these is of, where the next batch may join it."""
        self._lines: dict[int, list[StoredMessage]] = {}
        self._joined: list[Part] = []
        """What it has for the same subscriptions, and all of that."""

    def add(self, state: State, batch: PendingBatch, incoming: Incoming, fx: Effects) -> int:
        """The next batch, with all that can be found out about it; how many steps that took."""
        producer = batch.producer
        audience = state.space.audience(producer.topic, state.now_ms)
        self._audiences[producer.topic] = audience
        self._version = state.space.version
        rows, pack, due = stamped_for(batch, incoming, audience)
        messages = make_messages(
            rows,
            slice_payloads(pack, rows),
            batch.first_id,
            0,
            batch.timestamp_ms,
            batch.is_persistent,
        )
        out = FanOut(state, batch, due, incoming.uses, messages, fx)
        found = out.parts(audience.groups(messages, known_of(batch, incoming, audience)))
        self.missed += out.missed
        self.withheld += [(one, batch.count) for one in audience.withheld]
        for subscriptions, chosen in found:
            self.waiting_bytes += len(subscriptions) * sizes_of(chosen)
        at = retained_at(incoming.rows)
        if at is not None:
            out.hold_retained(state.retained_place(fx), messages[at])
            self._retained.append((producer.topic, messages[at]))
        if self._is_persistent:
            record = record_of_batch(batch, out.placements, pack, 0, 0, None, out.further)
            self._add_record(encode_part(record), messages)
        else:
            for message in messages:
                message.slot = OF_COMMIT
            self.record_bytes += len(pack)
        if found:
            self._spread(audience, found, due, incoming.uses)
        self.messages += messages
        self.batches.append(batch)
        return BATCH_STEPS + len(messages) + len(found) * PART_STEPS

    def _add_record(self, part: bytes, messages: Sequence[StoredMessage]) -> None:
        self._firsts.append((self.record_bytes, len(self.messages)))
        self._parts.append(part)
        self.record_bytes += len(part)
        start = self.record_bytes - sum([m.length for m in messages])
        for message, offset in zip(messages, offsets_of(messages, start), strict=True):
            if message.holders:
                self._held.append(message)
                self._offsets.append(offset)

    def _spread(
        self, audience: Audience, found: list[Part], due: Mapping[int, int], uses: int
    ) -> None:
        """They go the way of those before them, where these go to the same subscriptions."""
        if due or audience.is_guarded:
            self._last = None
            self._spreads.append(Spread(found, due, uses))
            return
        if self._last is None or self._last != (audience, uses):
            self._last, self._lines, self._joined = (audience, uses), {}, []
            self._spreads.append(Spread(self._joined, due, uses))
        for subscriptions, chosen in found:
            key = id(subscriptions[0] if len(subscriptions) == 1 else subscriptions)
            line = self._lines.get(key)
            if line is None:
                line = self._lines[key] = []
                self._joined.append((subscriptions, line))
            line += chosen

    def end(self) -> None:
        """No further batch joins it."""
        self._data, self._parts = bytearray().join(self._parts), []
        for batch in self.batches:
            batch.answers, batch.incoming, batch.published = None, None, self

    def may_take(self, batch: PendingBatch) -> bool:
        """Whether it may join those that are here."""
        has_room = len(self.messages) + batch.count <= MESSAGES_PER_BATCH_MAX
        return has_room and batch.is_persistent == self._is_persistent

    def check_steps(self) -> int:
        """What is_current() takes."""
        entries = sum([len(one.subscriptions) for one in self._audiences.values()])
        return len(self._audiences) + entries // AUDIENCES_PER_STEP

    def is_known(self, state: State) -> bool:
        """Whether nobody subscribes that did not, nobody ended, and no time is over."""
        return self._version == state.space.version and all(
            state.now_ms < one.until_ms for one in self._audiences.values()
        )

    def is_current(self, state: State) -> bool:
        """Whether those get it who were found for it; else it has to be made anew."""
        if self.is_known(state):
            return True
        for topic, audience in self._audiences.items():
            if not state.space.audience(topic, state.now_ms).is_like(audience):
                return False
        self._version = state.space.version
        return True

    def drop(self) -> None:
        """It is made anew."""
        for batch in self.batches:
            batch.published = None

    def store(self, state: State, fx: Effects) -> list[Record | Encoded]:
        """It is published; its records."""
        messages, data, now_ms = self.messages, self._data, state.now_ms
        first_seq = state.take_seqs(len(messages))
        for seq, message in enumerate(messages, first_seq):
            message.seq = seq
        for batch in self.batches:
            producer = batch.producer
            target, node = producer.destination, producer.node
            assert isinstance(target, Topic) and node is not None, "only topics publish"  # noqa: PT018
            target.sent += batch.count
            node.used_ms = now_ms
        for subscription, count in self.missed:
            subscription.missed += count
        for subscription, count in self.withheld:
            subscription.withheld += count
        begin_spreads(state, self._spreads, self.waiting_bytes)
        records: list[Record | Encoded] = []
        if self._is_persistent:
            put_first_seqs(data, self._firsts, first_seq)
            log_position = state.blocks.add(self._held, self._offsets)
            log_positions = () if log_position is None else ((log_position, 0),)
            records = [Encoded(len(self._firsts), len(messages), memoryview(data), log_positions)]
        for topic, message in self._retained:
            node = state.space.tree.node(topic, now_ms, is_known=True)
            records += retain(state, node, message, fx)[1]
        return records
