"""The lives of the node in a run: it boots, takes its turns, and crashes when its ending comes."""

from collections.abc import Callable, Hashable
from itertools import islice
from typing import TYPE_CHECKING

from hms.errors.catalogue import StoreFailed, StoreUnavailable
from hms.server.doors.door import Frame
from tests.sim.disk import SimDisk
from tests.sim.faults import STEP, STOP, Ending
from tests.sim.inode import Inode
from tests.sim.judge import Invariants, Judge
from tests.sim.node import Log, Node

if TYPE_CHECKING:
    import random

    from tests.sim.network import Pipe


class Lives:
    """A world is one of these."""

    rng: "random.Random"
    disk: SimDisk
    judge: Judge
    node: Node | None
    pipes: "list[Pipe]"
    now_ms: int
    boots: int
    crashes: int
    is_ending: bool
    user_bytes: int
    tell: Callable[[str], None]
    _log: Log

    def _boot(self) -> None:
        self.boots += 1
        self._ending = None if self.is_ending else Ending.draw(self.rng)
        self.disk.start()
        self.tell(f"boot {self.boots}: {self._ending}")
        clock: Callable[[], int] = lambda: self.now_ms  # noqa: E731
        try:
            windows = self.is_watched  # the planted faults' likely seeds were found without them
            self.node = Node(
                self.disk,
                self.rng,
                clock,
                self._log,
                self._judged,
                has_windows=windows,
                user_bytes=self.user_bytes,
            )
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
        self.judge.refusal(node, peer, frame)
        if self.is_judged:
            self.judge.frame(node, peer, frame)
        if self._ending is not None:
            self._ending.frame()
