"""The world: one run of the simulator, from one seed. Time, network, disk, clients and the node.

One thread, no sleeping: at every step the seed chooses who goes on. The node crashes, and boots
again, until the run has had its crashes; then everything is healed, the applications finish, all
places are drained, and the books are balanced.
"""

import hashlib
import random
import traceback
from collections import deque
from collections.abc import Callable, Hashable
from itertools import islice

from field_buffer.catalogue import StoreFailed, StoreUnavailable
from hms.store.journal.recovery import Recovery
from tests.sim import cast
from tests.sim.books import Books
from tests.sim.check import Check
from tests.sim.client import Client
from tests.sim.disk import Crash, Inode, SimDisk
from tests.sim.drain import drain
from tests.sim.durable import Durable
from tests.sim.faults import STEP, STOP, Ending
from tests.sim.judge import Invariants, Judge
from tests.sim.ledger import Ledger
from tests.sim.network import Pipe
from tests.sim.node import NODE_UID, STORE, Node
from tpmon.wire import Frame

STEPS_TO_FINISH_MAX = 60_000
FAULTS_TOLD_MAX = 20


class Stuck(AssertionError):
    """Somebody waits for ever."""


class World:
    """See the module. is_judged: P1 and P7 are watched at every moment, too; is_watched: so is the
    state of the engine."""

    def __init__(
        self, seed: int, crashes: int = 12, *, is_judged: bool = True, is_watched: bool = True
    ) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.disk = SimDisk(random.Random(self.rng.getrandbits(64)))
        self.disk.before = self._on_disk_call
        self.disk.clock_s = lambda: self.now_s
        self.now_ms = 1_000_000
        self.books = Books(lambda: self.boots)
        self.judge = Judge(self, Durable(self.disk))
        self.is_judged, self.is_watched = is_judged, is_watched
        self.is_ending = False
        self.boots = self.crashes = 0
        self.everybody: list[Client] = []
        self.clients: list[Client] = []
        self.pipes: list[Pipe] = []
        self.transacted: set[tuple[int, int]] = set()
        self.places: dict[tuple[int, int], str] = {}
        self.selectors: dict[str, str] = {}
        self.node: Node | None = None
        self.story: deque[str] = deque(maxlen=300)
        self.digest = hashlib.blake2b()
        self._crashes_wanted = crashes
        self._ending: Ending | None = None
        self._segment_bytes = self.rng.choice((32, 32, 64, 128)) << 10
        self._faults: list[str] = []

    @property
    def now_s(self) -> float:
        """Simulated seconds."""
        return self.now_ms / 1000

    # ---- the run

    def run(self) -> list[str]:
        """The faults that were found."""
        try:
            for role in cast.draw(self):
                self.clients.append(cast.join(self, role))
            while self.crashes < self._crashes_wanted and not self._faults:
                self.step()
            if not self._faults:
                self._finish()
        except Exception as error:
            where = traceback.format_exc().splitlines()
            self._faults.append(f"failed: {error!r}\n" + "\n".join(where[-24:]))
        return self._faults[:FAULTS_TOLD_MAX]

    def step(self) -> None:
        """Somebody goes on."""
        self.now_ms += self.rng.choice((0, 0, 0, 1, 1, 5))
        try:
            self._step()
        except Crash as crash:
            self._crashed(is_power=crash.is_power)
        if self.is_judged and (self.judge.faults or self.disk.violations):
            self._faults += self.judge.faults + self.disk.violations

    def _step(self) -> None:
        roll, node = self.rng.random(), self.node
        if node is None:
            if roll < 0.06:
                self._boot()
                return
        elif roll < 0.55:
            self._node_step(node)
            return
        if roll < 0.97 or self.is_ending:
            self._client_step()
        else:
            self._trouble()

    # ---- the node

    def _boot(self) -> None:
        self.boots += 1
        self._ending = None if self.is_ending else Ending.draw(self.rng)
        self.disk.start()
        self.tell(f"boot {self.boots}: {self._ending}")
        clock: Callable[[], int] = lambda: self.now_ms  # noqa: E731
        try:
            self.node = Node(self.disk, self.rng, clock, self._segment_bytes, self._judged)
        except (StoreUnavailable, StoreFailed) as fault:
            self.tell(f"boot refused: {fault}")
            self._crashed(is_power=False)
            return
        if self._ending is not None and self._ending.kind == STOP:
            self._ending.kind, self._ending.is_power = STEP, False
            self._stops = True
        else:
            self._stops = False
        self._invariants = Invariants(self.node)
        self._look()

    def _node_step(self, node: Node) -> None:
        roll = self.rng.random()
        if roll < 0.02:
            node.tick()
        elif roll < 0.3:
            self._read(node)
        elif node.take_turn():
            self._look()
        if node.failure is not None and self.rng.random() < 0.2:
            self.tell(f"the node stops: {node.failure}")
            self._crashed(is_power=self.rng.random() < 0.3)
        elif self._ending is not None and self._ending.count(STEP):
            if self._stops:
                node.stop()
            self._crashed(is_power=self._ending.is_power)

    def _read(self, node: Node) -> None:
        pipes = [pipe for pipe in self.pipes if pipe.is_node_side_open]
        if not pipes:
            return
        pipe = self.rng.choice(pipes)
        for _ in range(min(len(pipe.to_node), self.rng.randint(1, 4))):
            node.read(pipe)
        if pipe.is_cut and not pipe.to_node and self.rng.random() < 0.2:
            pipe.is_node_side_open = False
            node.lose(pipe)

    def _look(self) -> None:
        if not self.is_watched:
            return
        is_thorough = self.rng.random() < 0.02
        said = islice(self._invariants.look(is_thorough=is_thorough), 3)
        self._faults += [f"invariant: {one}" for one in said]

    def _crashed(self, *, is_power: bool) -> None:
        """The node is gone; clients notice in their own time."""
        if self.node is not None:
            self.node.die()
        self.node, self._ending = None, None
        self.disk.fail(is_power=is_power)
        self.disk.is_full = False
        for pipe in self.pipes:
            pipe.cut(self.rng)
            pipe.to_node.clear()
            pipe.is_node_side_open = False
        self.crashes += 1
        self.tell(f"crash {self.crashes}: {'power' if is_power else 'process'}")

    def _on_disk_call(self, call: str, inode: Inode | None) -> None:
        if self._ending is not None:
            self._ending.disk_call(call)
        node = self.node
        if call == "fdatasync" and node is not None and node.is_leading:
            for _ in range(self.rng.choice((0, 0, 1, 2))):
                node.work_lane()  # other workers go on meanwhile

    def _judged(self, node: Node, peer: Hashable, frame: Frame) -> None:
        self.digest.update(b"".join(frame))
        if self.is_judged:
            self.judge.frame(node, peer, frame)
        if self._ending is not None:
            self._ending.frame()

    # ---- clients and network

    def dial(self, uid: int) -> Pipe:
        """A new connection."""
        pipe = Pipe(uid)
        self.pipes = [p for p in self.pipes if p.is_client_side_open or p.is_node_side_open]
        if self.node is None:
            pipe.is_cut, pipe.is_node_side_open = True, False
        self.pipes.append(pipe)
        return pipe

    def _client_step(self) -> None:
        if not self.clients:
            return
        client = self.rng.choice(self.clients)
        pipe, roll = client.pipe, self.rng.random()
        if pipe is None:
            if self.node is not None and roll < 0.3:
                client.connect()
        elif pipe.to_client and roll < 0.6:
            for _ in range(self.rng.randint(1, 4)):
                if client.pipe is not None and client.pipe.to_client:
                    client.receive()
        elif pipe.is_cut and not pipe.to_client and roll < 0.8:
            client.lose()
        elif roll > 0.95:
            client.tick()
            return
        client.take_turn()

    def _trouble(self) -> None:
        """Connections are cut, clients vanish and come, the disk is full for a while."""
        roll = self.rng.random()
        client = self.rng.choice(self.clients) if self.clients else None
        if roll < 0.5 and self.pipes:
            self.rng.choice(self.pipes).cut(self.rng)
        elif roll < 0.6 and client is not None:
            self.vanish(client)
            self.clients.append(cast.join(self, client.role))
        elif roll < 0.7 and client is not None and client.pipe is not None:
            client.lose()  # it dials again before the node misses it
        elif roll < 0.75:
            self.disk.is_full = not self.disk.is_full
        elif roll < 0.8:
            self.now_ms += self.rng.choice((10, 100, 1_000))

    def vanish(self, client: Client) -> None:
        """A client process ends without a word."""
        self.tell(f"{client.name} vanishes")
        if client.pipe is not None:
            client.pipe.cut(self.rng)
            client.pipe.is_client_side_open = False
            client.pipe = None
        self.clients.remove(client)

    def tell(self, what: str) -> None:
        """A line of the story, for whoever reads of a failed run."""
        self.story.append(f"{self.now_ms} {what}")
        self.digest.update(what.encode())

    # ---- the end

    def _finish(self) -> None:
        self.is_ending, self.disk.is_full, self._ending = True, False, None
        self.until(lambda: not any(client.apps for client in self.clients), "the applications")
        drain(self)
        if self._faults:
            return
        self._crashed(is_power=True)
        self._boot()
        assert self.node is not None
        left = [q.name for q in self.node.engine.state.places.values() if q.line.size_bytes]
        if left:
            self._faults.append(f"leftover: after the last boot in {left}")
        self._faults += Check(self.books, self._ledger(), self.boots - 1).run()

    def until(self, is_done: Callable[[], bool], what: str) -> None:
        """Go on until that holds."""
        for _ in range(STEPS_TO_FINISH_MAX):
            if is_done() or self._faults:
                return
            self.step()
        raise Stuck(f"{what} do not come to an end")

    def _ledger(self) -> Ledger:
        return Ledger().read(Recovery(self.disk, STORE, NODE_UID).records())

    def fingerprint(self) -> str:
        """Of all that was said, and of every byte of the log (P3)."""
        for name, inode in sorted(self.disk.names.items()):
            if name != "LOCK":
                self.digest.update(name.encode() + bytes(inode.cache))
        return self.digest.hexdigest()
