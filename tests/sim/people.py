"""The people of a run: clients and the network between them and the node."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.sim import cast
from tests.sim.books import Books
from tests.sim.client import Client
from tests.sim.disk import SimDisk
from tests.sim.judge import disagreements
from tests.sim.network import Pipe
from tests.sim.node import Node

if TYPE_CHECKING:
    import random


class People:
    """A world is one of these."""

    rng: "random.Random"
    disk: SimDisk
    node: Node | None
    clients: list[Client]
    pipes: list[Pipe]
    now_ms: int
    books: Books
    is_ending: bool
    is_watched: bool
    tell: Callable[[str], None]
    _faults: list[str]

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
        is_seen = self.is_watched and client.is_up and self.node is not None
        if is_seen and self.node.is_quiet(pipe):
            self._faults += [f"invariant: {said}" for said in disagreements(client, self.node)]
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
        if not self.is_ending:
            self.books.vanished.add(client.name)
        if client.pipe is not None:
            client.pipe.cut(self.rng)
            client.pipe.is_client_side_open = False
            client.pipe = None
        self.clients.remove(client)
