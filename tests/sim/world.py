"""The world: one run of the simulator, from one seed. Time, network, disk, clients and the node.

One thread, no sleeping: at every step the seed chooses who goes on. The node crashes, and boots
again, until the run has had its crashes; then everything is healed, the applications finish, all
places are drained, and the books are balanced.
"""

import hashlib
import random
import traceback
from collections import deque
from collections.abc import Callable

from hms.store.journal.reader import read_store
from hms.store.journal.segment_manager import LogLimits
from tests.sim import cast
from tests.sim.books import Books
from tests.sim.check import Check
from tests.sim.client import Client
from tests.sim.disk import Crash, SimDisk
from tests.sim.drain import drain
from tests.sim.durable import Durable
from tests.sim.faults import Ending
from tests.sim.judge import Judge
from tests.sim.ledger import Ledger
from tests.sim.lives import Lives
from tests.sim.network import Pipe
from tests.sim.node import Log, Node
from tests.sim.people import People
from tests.sim.setting import STORE

STEPS_TO_FINISH_MAX = 60_000
FAULTS_TOLD_MAX = 20


class StuckError(AssertionError):
    """Somebody waits for ever."""


class World(Lives, People):
    """See the module. is_judged: P1 and P7 are watched at every moment, too; is_watched: so is the
    state of the engine; user_bytes: what a user may have in flight, 0: there are no users."""

    def __init__(
        self,
        seed: int,
        crashes: int = 12,
        *,
        is_judged: bool = True,
        is_watched: bool = True,
        user_bytes: int = 0,
    ) -> None:
        self.seed, self.user_bytes = seed, user_bytes
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
        segment_bytes = self.rng.choice((32, 32, 64, 128)) << 10
        segments_max = (0, 8, 12)[seed % 3]
        # The books read all of the history, so a full disk must not cost any of it.
        limits = LogLimits(segments_max * segment_bytes, is_archive_required=True)
        self._log = Log(segment_bytes, limits, (0.75, 1e-5, 5e-5)[seed // 3 % 3])
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
        raise StuckError(f"{what} do not come to an end")

    def _ledger(self) -> Ledger:
        return Ledger().read(read_store(STORE, self.disk))

    def fingerprint(self) -> str:
        """Of all that was said, and of every byte of the log (P3)."""
        for name, inode in sorted(self.disk.names.items()):
            if name != "LOCK":
                self.digest.update(name.encode() + bytes(inode.cache))
        return self.digest.hexdigest()
