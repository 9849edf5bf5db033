"""Two nodes that know nothing of each other, and clients that were given both addresses.

Each node has a disk and a log of its own. They are killed in turn while clients send, commit and
acknowledge. A client dials as the library does: the next address after each failed attempt, and
another log is turned away while the client looks for the one that may hold what is unconfirmed.
"""

import random
from collections.abc import Callable

from hms.client.core.reconnection import Attempts
from hms.errors.tree import HmsError
from hms.server.doors.door import Frame
from hms.store.journal.segment_manager import LogLimits
from tests.sim.client import App, Client
from tests.sim.disk import SimDisk
from tests.sim.network import Pipe
from tests.sim.node import Log, Node
from tests.sim.setting import NODE_UID
from tests.sim.strangers_apps import drain, receive, relay, send
from tests.sim.strangers_books import Books

ADDRESSES = ("tcp://first:1", "tcp://second:1")
LOG = Log(64 << 10, LogLimits(0, is_archive_required=True), 0.75)
IDLE_MS = 150
"""A client that dawdles in a transaction longer than that finds it rolled back."""
LOOKS_S = (0.05, 0.5, 2.0)
STEPS_MAX = 80_000


class Site:
    """One machine: its disk, and the node while there is one. away: for how many steps more it
    stays down."""

    def __init__(self, world: "Strangers", number: int) -> None:
        self.world, self.number = world, number
        self.disk = SimDisk(random.Random(world.rng.getrandbits(64)))
        self.disk.clock_s = lambda: world.now_s
        self.node: Node | None = None
        self.pipes: list[Pipe] = []
        self.away = 0

    @property
    def is_alone(self) -> bool:
        """Whether there is a node, and no client of it."""
        return self.node is not None and not self.node.engine.state.connections

    def boot(self) -> None:
        """A new life, from what is on the disk."""
        world, uid = self.world, NODE_UID + self.number
        self.disk.start()
        self.node = Node(
            self.disk,
            world.rng,
            lambda: world.now_ms,
            LOG,
            _unjudged,
            uid=uid,
            transaction_idle_ms=world.transaction_idle_ms,
        )

    def step(self) -> None:
        """The node goes on, or stays away a little longer."""
        rng, node = self.world.rng, self.node
        if node is None:
            self.away -= 1
            if self.away <= 0:
                self.boot()
            return
        roll = rng.random()
        if roll < 0.02:
            node.tick()
        elif roll < 0.5:
            self._read(node)
        else:
            node.take_turn()

    def _read(self, node: Node) -> None:
        pipes = [pipe for pipe in self.pipes if pipe.is_node_side_open]
        if not pipes:
            return
        pipe = self.world.rng.choice(pipes)
        for _ in range(min(len(pipe.to_node), 4)):
            node.read(pipe)
        if pipe.is_cut and not pipe.to_node:
            pipe.is_node_side_open = False
            node.lose(pipe)

    def kill(self, away: int) -> None:
        """SIGKILL, or a power cut."""
        assert self.node is not None
        self.node.die()
        self.node, self.away = None, away
        self.disk.fail(is_power=self.world.rng.random() < 0.5)
        for pipe in self.pipes:
            pipe.cut(self.world.rng)
            pipe.to_node.clear()
            pipe.is_node_side_open = False
        self.pipes.clear()

    def dial(self, uid: int) -> Pipe:
        """A new connection; a dead one while there is no node."""
        pipe = Pipe(uid)
        if self.node is None:
            pipe.is_cut, pipe.is_node_side_open = True, False
        else:
            self.pipes.append(pipe)
        return pipe


class Caller(Client):
    """A client that moves between addresses as hms.client.core.transport_loop does."""

    world: "Strangers"

    def __init__(self, world: "Strangers", name: str, uid: int, *addresses: str) -> None:
        super().__init__(world, name, uid)
        self.attempts = Attempts(addresses, 0.5, 0)
        self.attempts.begin(world.now_s)

    def connect(self) -> None:
        """Dial the address whose turn it is."""
        self.link.address = self.attempts.address
        self.attempts.started()
        super().connect()

    def lose(self, error: HmsError | None = None) -> None:
        """The connection is gone: the same address again, then the next one."""
        now, was_up = self.world.now_s, self.is_up
        super().lose(error)
        if was_up:
            self.attempts.begin(now)
            self.link.looks_until = now + self.world.looks_s
        else:
            self.attempts.failed(now)


class Strangers:
    """One run, from one seed. See the module."""

    def __init__(self, seed: int, kills: int = 6) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 1_000_000
        self.looks_s = self.rng.choice(LOOKS_S)
        self.transaction_idle_ms = self.rng.choice((0, 0, IDLE_MS))
        self.books = Books()
        self.is_ending = False
        self.kills = 0
        self._kills_wanted = kills
        self.sites = [Site(self, number) for number in range(len(ADDRESSES))]
        self.clients: list[Caller] = []

    @property
    def now_s(self) -> float:
        """Simulated seconds."""
        return self.now_ms / 1000

    def dial(self, _uid: int) -> Pipe:
        """A new connection of the client whose turn it is."""
        client = self._dialling
        return self.sites[ADDRESSES.index(client.attempts.address)].dial(client.uid)

    def run(self) -> list[str]:
        """The faults that were found."""
        for site in self.sites:
            site.boot()
        for number, app in enumerate((send, send, receive, receive, relay), 10):
            self._join(number, app)
        self._join(20, send, is_transacted=True)
        self._join(21, receive, is_transacted=True)
        for turn in range(self._kills_wanted):
            self._steps(self.rng.randint(100, 1_200))
            site = self.sites[turn % len(self.sites)]
            if site.node is not None:
                # long enough to give up looking, or short enough to be found again
                site.kill(self.rng.choice((20, 200, 4_000)))
                self.kills += 1
        self.is_ending = True
        self._until(lambda: not any(client.apps for client in self.clients))
        self._everybody_leaves()
        for number, address in enumerate(ADDRESSES):
            client = Caller(self, f"drain {number}", 90 + number, address)
            self.clients.append(client)
            client.run(drain(client, self.books))
        self._until(lambda: not any(client.apps for client in self.clients))
        return self.books.faults()

    def _join(self, number: int, app, **how: bool) -> None:
        order = ADDRESSES if self.rng.random() < 0.5 else ADDRESSES[::-1]
        client = Caller(self, f"{app.__name__}{number}", number, *order)
        self.clients.append(client)
        steps: App = app(client, self.books, **how)
        client.run(steps)

    def _steps(self, count: int) -> None:
        for _ in range(count):
            self._step()

    def _everybody_leaves(self) -> None:
        """So that nobody holds what is drained."""
        for client in self.clients:
            if client.pipe is not None:
                client.pipe.cut(self.rng)
        self.clients.clear()
        self._until(lambda: all(site.is_alone for site in self.sites))

    def _until(self, is_done: Callable[[], bool]) -> None:
        for _ in range(STEPS_MAX):
            if is_done():
                return
            self._step()
        waiting = [client.name for client in self.clients if client.apps]
        raise AssertionError(f"they do not come to an end: {waiting}")

    def _step(self) -> None:
        self.now_ms += self.rng.choice((0, 0, 0, 1, 1, 5))
        if self.rng.random() < 0.5:
            self.rng.choice(self.sites).step()
        elif self.clients:
            self._client_step(self.rng.choice(self.clients))

    def _client_step(self, client: Caller) -> None:
        pipe, roll = client.pipe, self.rng.random()
        if pipe is None:
            if self.now_s >= client.attempts.due_at:
                self._dialling = client
                client.connect()
        elif pipe.to_client and roll < 0.7:
            for _ in range(self.rng.randint(1, 4)):
                if client.pipe is not None and client.pipe.to_client:
                    client.receive()
        elif pipe.is_cut and not pipe.to_client:
            client.lose()
        elif roll > 0.95:
            client.tick()
            return
        client.take_turn()


def _unjudged(_node: Node, _peer: object, _frame: Frame) -> None:
    """What is judged is what clients are told."""
