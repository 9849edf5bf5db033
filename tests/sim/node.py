"""The node: engine, broker and journal, put together as the node process does, without its threads.

Who simulates takes its turns: read a frame, work a lane, lead the log, do a job, send. While
the log is being synced other lanes go on, as they do in the real node.
"""

import random
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from msgspec import structs

from hms.boot.recovering import RUNS_OF
from hms.engine.effects import Effects
from hms.engine.engine import Engine
from hms.errors.catalogue import NodeStopping, StoreFailed
from hms.errors.tree import HmsError
from hms.server.broker import INTERNAL, TICK, Broker, Identity, Lost, Surroundings
from hms.server.doors.door import Frame
from hms.server.effect_release import append_records
from hms.store.journal import Journal
from hms.store.journal.segment_manager import LogLimits
from hms.wire.frames import Kind, decode_envelope
from tests.sim.disk import SimDisk
from tests.sim.network import Pipe
from tests.sim.setting import LIMITS, NO_WINDOWS, NODE_UID, SETTINGS, STORE, Alone, Progress
from tests.sim.users import users
from tpmon.scheduling.monitor import Monitor

SEAL_SHARE = 0.003
"""Of the turns, so many are an operator's who has the log begin a new segment."""


class Log(NamedTuple):
    """How a simulated node keeps its log."""

    segment_bytes: int
    limits: LogLimits
    paging_share: float


class Node:
    """One life of the node, from boot to its end."""

    def __init__(
        self,
        disk: SimDisk,
        rng: random.Random,
        clock_ms: Callable[[], int],
        log: "Log",
        judge: Callable[["Node", Hashable, Frame], None],
        *,
        has_windows: bool = True,
        uid: int = NODE_UID,
        transaction_idle_ms: int = 0,
        user_bytes: int = 0,
    ) -> None:
        """user_bytes: what a user may have in flight; 0: there are no users."""
        self._disk, self._rng, self._judge = disk, rng, judge
        self.pipes: dict[int, Pipe] = {}
        self.asked: dict[tuple[Hashable, int], tuple[Kind, bytes]] = {}
        self.uids: dict[Hashable, int] = {}
        self.is_leading = False
        self.failure: HmsError | None = None
        self._lanes: dict[Hashable, deque[Any]] = {}
        self._busy: set[Hashable] = set()
        self._jobs: deque[Callable[[], None]] = deque()
        self._is_due = False
        self._outbox: deque[tuple[Hashable, Frame | str]] = deque()
        self._next_peer = 1
        self._slowness = rng.choice((0.0, 0.0, 0.5, 0.95))
        """How rarely the storage workers get to work: a slow disk."""
        self._sealing = random.Random(repr(rng.getstate()))  # drawn beside it: seeds stay as told
        self.journal = Journal.open(
            STORE, segment_bytes=log.segment_bytes, node_uid=uid, disk=disk, limits=log.limits
        )
        idle = {"transaction_idle_ms": transaction_idle_ms}
        self.engine = Engine(
            replace(SETTINGS, paging_share=log.paging_share, **idle), random.Random(uid).randbytes
        )
        limits = LIMITS if has_windows else NO_WINDOWS
        limits = structs.replace(limits, transaction_idle_s=transaction_idle_ms / 1000)
        identity = Identity("sim", uid, limits, "sim")
        entrance = users(self.engine, user_bytes) if user_bytes else None
        self.broker = Broker(
            self.engine, self.journal, Monitor(), identity, clock_ms, entrance=entrance
        )
        self.broker._lock = Alone()
        self.broker._progress = Progress(lambda: None if self.is_leading else self.work_storage)
        self.broker.begin(Surroundings(self, self))
        self._boot(clock_ms, uid)

    def _boot(self, clock_ms: Callable[[], int], uid: int) -> None:
        recovery = self.engine.recovery(
            partial(self.journal.pinned_records, runs_of=RUNS_OF), self.journal.read
        )
        for _, kind, _, payload, position in self.journal.recover(RUNS_OF):
            recovery.apply(kind, payload, position)
        recovery.finish()
        self.journal.pin(self.engine.pinned_segments())
        fx = Effects()
        known, first = self.engine.state.identity, self.journal.last_lsn + 1
        assert first == 1 or known.writer_before(first).boot, "nobody knows who wrote the log"
        own = first, b"%08x%08x" % (uid - NODE_UID, first)
        self.engine.boot(clock_ms(), None, "sim", fx, own)
        self.journal.start(self._dictionary)
        append_records(self.journal, fx.records)
        self.journal.commit()
        self.journal.maintain()

    def _dictionary(self) -> tuple[int, int, Sequence[bytes | memoryview]]:
        record = self.engine.dictionary()
        return record.type, record.events, record.parts

    # ---- what the broker calls

    def notify(self) -> None:
        self._is_due = True

    notify_later = notify  # how much later is drawn as for everything else

    def submit(self, job: Callable[[], None]) -> None:
        self._jobs.append(job)

    def put(self, items: Sequence[tuple[Hashable, Frame]]) -> None:
        for peer, frame in items:
            self._judge(self, peer, frame)
            self._outbox.append((peer, frame))

    def accept(self, peer: Hashable) -> None:
        pass

    def forget(self, peer: Hashable) -> None:
        self._outbox.append((peer, "forget"))

    # ---- turns

    def take_turn(self) -> bool:
        """Something that a thread of the node would do now; False when there is nothing."""
        if self.failure is None and self._sealing.random() < SEAL_SHARE:
            self._guard(lambda: self.broker._change(self._seal))
        choices = []
        if self.is_storage_due and self._rng.random() >= self._slowness:
            choices.append(self.work_storage)
        if self._free_lanes():
            choices.append(self.work_lane)
        if self._outbox:
            choices += [self.send_some, self.send_some]
        if not choices:
            return False
        self._rng.choice(choices)()
        return True

    def _seal(self, fx: Effects, _now_ms: int) -> None:
        """An operator has the log begin a new segment."""
        if self.journal.seal() is not None:
            self.engine.tell_identity(fx)

    @property
    def is_storage_due(self) -> bool:
        """Whether a storage worker has something to do."""
        return self._is_due or bool(self._jobs)

    def is_quiet(self, pipe: Pipe) -> bool:
        """Whether nothing is on its way between a client and the engine."""
        has_frames = bool(
            pipe.is_cut or pipe.to_node or pipe.to_client or self._outbox or self._is_due
        )
        is_idle = not (has_frames or self._lanes or self._busy)
        return is_idle and pipe.peer in self.pipes and self.failure is None

    def work_storage(self) -> None:
        """Lead the log, or do a job beside it."""
        if self._jobs and (not self._is_due or self._rng.random() < 0.5):
            self._guard(self._jobs.popleft())
        elif self._is_due:
            self._is_due, self.is_leading = False, True
            try:
                self._guard(self.broker.lead)
            finally:
                self.is_leading = False

    def work_lane(self) -> None:
        """Some of the frames of a lane."""
        lanes = self._free_lanes()
        if lanes:
            peer = self._rng.choice(lanes)
            lane = self._lanes[peer]
            count = self._rng.randint(1, min(len(lane), 6))
            items = [lane.popleft() for _ in range(count)]
            self._busy.add(peer)
            try:
                self._guard(lambda: self.broker.handle(peer, items))
            finally:
                self._busy.discard(peer)
                if not self._lanes[peer]:
                    del self._lanes[peer]

    def _free_lanes(self) -> list[Hashable]:
        return [peer for peer, lane in self._lanes.items() if lane and peer not in self._busy]

    def _guard(self, work: Callable[[], Any]) -> None:
        """A fault of the store ends the node (P7); any other is a fault of ours."""
        try:
            work()
        except StoreFailed as fault:
            if self.failure is None:
                self.failure = fault
                self.broker.farewell(fault)

    def send_some(self) -> None:
        """The gateway sends what lies in the outbox, or some of it."""
        for _ in range(self._rng.randint(1, len(self._outbox))):
            key, frame = self._outbox.popleft()
            pipe = self.pipes.get(key)
            if pipe is None:
                continue
            if frame == "forget":
                self._remove(pipe)
                pipe.close_node_side()
            else:
                pipe.send_to_client(frame)

    def tick(self) -> None:
        """What the scheduler brings."""
        self._lanes.setdefault(INTERNAL, deque()).append(TICK)
        if self.journal.needs_maintenance:
            self.submit(self.broker.maintain)

    # ---- the gateway

    def read(self, pipe: Pipe) -> None:
        """Take a frame from a connection to its lane."""
        frame = pipe.to_node.popleft()
        envelope = decode_envelope(frame, LIMITS.frame_bytes_max)
        if pipe.peer is None:
            assert envelope.kind is Kind.HELLO, "the first frame of a connection"
            pipe.peer, self._next_peer = self._next_peer, self._next_peer + 1
            self.pipes[pipe.peer] = pipe
            self.uids[pipe.peer] = pipe.uid
        if pipe.peer not in self.pipes:
            return  # it was forgotten
        if envelope.kind is not Kind.HEARTBEAT:
            self.asked[pipe.peer, envelope.correlation] = envelope.kind, frame[1]
            self._lanes.setdefault(pipe.peer, deque()).append((envelope, frame[1]))

    def lose(self, pipe: Pipe) -> None:
        """The gateway notices that a connection is gone."""
        if pipe.peer in self.pipes:
            self._remove(pipe)
            self._lanes.setdefault(pipe.peer, deque()).append(Lost("cut"))

    def _remove(self, pipe: Pipe) -> None:
        del self.pipes[pipe.peer]

    # ---- the end

    def stop(self) -> None:
        """SIGTERM: finish what was taken, say good-bye."""
        self.broker.registry.is_stopping = True
        while self._free_lanes() or self.is_storage_due:
            self.work_lane()
            self.work_storage()
        self._guard(self.broker.stopped)
        while self.is_storage_due and self.failure is None:
            self.work_storage()
        self.broker.farewell(self.failure or NodeStopping())
        while self._outbox:
            self.send_some()
        self.journal.close()

    def die(self) -> None:
        """The process is gone: of what lay in the outbox some had left already."""
        if self._outbox and self._rng.random() < 0.5:
            self.send_some()
        self.engine.state.blocks.clear()
