"""A client process: the client library's own link, and applications that run on it by turns.

An application is a generator: it yields a condition and goes on when that holds, as a thread of the
real library would wake up. The library is the real one up to its operations (hms.client.*_steps);
the shell that drives them stands in shell.py, in the place of threads or an event loop.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from hms.client.core.link import Link, State
from hms.errors.catalogue import AcknowledgeLost, ConnectionLost
from hms.errors.tree import HmsError
from hms.wire.client_identity import uid_of
from hms.wire.structures import Hello
from tests.sim.network import Pipe

if TYPE_CHECKING:
    from tests.sim.world import World

Condition = Callable[[], object]
App = Iterator[Condition]


class Client:
    """See the module. A uid names it over its reconnects."""

    def __init__(self, world: "World", name: str, uid: int, *, is_server: bool = False) -> None:
        self.world = world
        self.name = name
        secret = b"%016d" % uid
        self.uid = uid_of(secret)
        hello = Hello(self.uid, client_name=name, is_server=is_server, secret=secret)
        self.link = Link(hello)
        self.link.on_error = self.on_error
        self.pipe: Pipe | None = None
        self.role = ""
        self.apps: list[tuple[App, Condition]] = []
        self.on_flush: list[Callable[[], None]] = []
        self.failures: list[HmsError] = []

    # ---- applications

    def run(self, app: App) -> None:
        """Start an application."""
        self.apps.append((app, lambda: True))

    @property
    def ready(self) -> list[int]:
        """Which applications could go on."""
        return [i for i, (_, condition) in enumerate(self.apps) if condition()]

    def take_turn(self) -> bool:
        """One application goes on; False when all of them wait."""
        ready = self.ready
        if not ready:
            return False
        at = self.world.rng.choice(ready)
        app = self.apps[at][0]
        condition = next(app, None)
        if condition is None:
            del self.apps[at]
        else:
            self.apps[at] = app, condition
        self.flush()
        return True

    # ---- the driver

    def connect(self) -> None:
        """Dial, and say HELLO."""
        self.pipe = self.world.dial(self.uid)
        self.link.greet(self.world.now_s)
        self.flush()

    def flush(self) -> None:
        """Send what the link has to send, run what it wants run."""
        link = self.link
        if link.outbox:
            outbox, link.outbox = link.outbox, []
            for frame in outbox:
                if self.pipe is not None:
                    self.pipe.send_to_node(frame)
        link.woken.clear()
        while link.calls:
            calls, link.calls = link.calls, []
            for call in calls:
                call()
        if link.outbox:
            self.flush()
        for look in self.on_flush:
            look()

    def receive(self) -> None:
        """Take a frame in."""
        assert self.pipe is not None
        frame = self.pipe.to_client.popleft()
        try:
            self.link.receive(frame, self.world.now_s)
        except HmsError as error:
            self.lose(error)
        self.flush()

    def lose(self, error: HmsError | None = None) -> None:
        """The connection is gone; the applications wait until there is another."""
        if self.pipe is not None:
            self.pipe.cut(self.world.rng)
            self.pipe.is_client_side_open = False
            self.pipe = None
        reason = error or ConnectionLost(address="sim", reason="cut")
        self.link.lose(reason, is_final=False)
        self.flush()

    def tick(self) -> None:
        """Send what was held back long enough."""
        ticking, self.link.ticking = self.link.ticking, []
        for participant in ticking:
            participant.tick()
        self.flush()

    def on_error(self, error: HmsError) -> None:
        """The exception listener."""
        self.failures.append(error)
        if isinstance(error, AcknowledgeLost):
            self.world.books.told_lost.add((self.name, int(error.message_id, 16)))

    @property
    def is_up(self) -> bool:
        """Whether the node knows it."""
        return self.link.state is State.UP
