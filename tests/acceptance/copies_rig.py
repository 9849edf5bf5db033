"""Three copies of a log, and cables between them, their arbiter and their clients that a test cuts.

While a cable is cut nothing arrives, and nobody is told: as when a switch is lost. When it is whole
again its old connections are reset, since bytes are missing in them.
"""

import os
import socket
import threading
from contextlib import ExitStack, contextmanager, suppress
from itertools import count

from cut_wire import cut_wire

from hms.testing.nodes import TestNode
from hms.testing.ports import free_port
from tests.acceptance.ha_rig import WAIT_S, begin_copies, connect, ended, switch_over
from tests.acceptance.pair_rig import LEASE_S, arbiter
from tests.support.waiting import wait_until

NAMES = ("a", "b", "c")
CHUNK = 1 << 16
_groups = count(1)


class Cable:
    """TCP from one process to another one, by way of a port of its own. target: host:port."""

    def __init__(self, target):
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.place = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._is_cut, self._guard, self._ends = False, threading.Lock(), []
        self._start(self._accept)

    @staticmethod
    def _start(job, *arguments):
        threading.Thread(target=job, args=arguments, daemon=True).start()

    def cut(self):
        """From now on nothing arrives."""
        self._is_cut = True

    def heal(self):
        """It is whole again."""
        if self._is_cut:
            self._reset()  # while nothing passes: bytes are missing
            self._is_cut = False
            self._reset()  # what was accepted meanwhile leads nowhere

    def close(self):
        """No connection more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._reset()

    def _reset(self):
        with self._guard:
            ends, self._ends = self._ends, []
        for one in ends:
            _end(one)

    def _accept(self):
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                with self._guard:
                    self._ends.append(near)
                if self._is_cut:
                    continue
                try:
                    far = socket.create_connection(self._target, 5)
                except OSError:
                    _end(near)
                    continue
                with self._guard:
                    self._ends.append(far)
                self._start(self._carry, near, far)
                self._start(self._carry, far, near)

    def _carry(self, one, other):
        with suppress(OSError):
            while data := one.recv(CHUNK):
                if not self._is_cut:
                    other.sendall(data)
        for end in (one, other):
            _end(end)


def _end(one):
    """Both ends learn of it; who still reads it is woken before it is closed."""
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


class Copies:
    """Machines a, b and c. wires: of the clients, by machine; cables: by who speaks and to whom,
    "arbiter" among them. config: node and replica have keys of each [node.NAME], [replica.NAME]."""

    def __init__(self, folder, decided_by, stack, config):
        ports = {name: f"127.0.0.1:{free_port()}" for name in NAMES}
        etcd = decided_by["endpoints"][0].removeprefix("http://")
        places = {**ports, "arbiter": etcd}
        self.cables = {
            (one, other): Cable(place)
            for one in NAMES
            for other, place in places.items()
            if one != other
        }
        for cable in self.cables.values():
            stack.callback(cable.close)
        domain = {"name": f"copies{next(_groups)}-{os.getpid()}"}
        self.nodes = {}
        for name in NAMES:
            own = folder / name
            own.mkdir()
            at = {
                other: place if other == name else self.cables[name, other].place
                for other, place in places.items()
            }
            told = {
                **config,
                "domain": domain,
                "node": {"node1": {"replica": name, **config.get("node", {})}},
                "arbiter": {**decided_by, "endpoints": [f"http://{at['arbiter']}"]},
                "replica": {
                    other: {"address": f"tcp://{at[other]}", **config.get("replica", {})}
                    for other in NAMES
                },
            }
            self.nodes[name] = TestNode(own, own / "store", told, (), (), ())
        self.wires = {
            name: stack.enter_context(cut_wire(one.address)) for name, one in self.nodes.items()
        }
        begin_copies(self.nodes["a"])

    @property
    def addresses(self):
        """Where clients find them, over their wires."""
        return [wire.address for wire in self.wires.values()]

    def heal(self):
        """All is as in the beginning; the three count."""
        for cable in self.cables.values():
            cable.heal()
        for wire in self.wires.values():
            wire.pass_on()
        self.wait_for_all()

    def wait_for_all(self):
        """Until each is there and has all, so that one may be lost."""
        wait_until(self._have_all, 2 * WAIT_S)

    def _have_all(self):
        for one in self.nodes.values():
            if not one.is_running:  # what was cut off may end only now
                one.boot()
        said = self.said()
        return (len(said["members"]), said["failures_survived"]) == (len(NAMES), 1)

    def said(self):
        """What the primary says of its copies."""
        with connect(*self.nodes.values()) as connection:
            return connection.administer("status")["replication"]

    @property
    def leader(self):
        """The name of the machine that leads."""
        return self.said()["replica"]

    def cut_off(self, name):
        """From its peers and from the arbiter."""
        for between, cable in self.cables.items():
            if name in between:
                cable.cut()

    def kill(self, name):
        """The machine is gone; its clients are cut off."""
        self.nodes[name].kill()
        self.wires[name].cut_client()

    def move(self, to=None):
        """Another machine leads, as planned; its name."""
        before = self.leader
        to = to or next(name for name in NAMES if name != before)
        switch_over(self.nodes.values(), to=to)
        wait_until(lambda: self.leader == to, WAIT_S)
        self.wait_for_all()
        return to

    def direct(self, **options):
        """A connection to whoever leads, over no wire."""
        return connect(*self.nodes.values(), **options)

    def found(self, queue="orders"):
        """Bodies and ids of what waits, the oldest first."""
        with self.direct() as connection, connection.session() as session:
            browser = session.browser(queue, oldest_first=True)
            return [(bytes(one.body), one.message_id) for one in browser]

    def bodies(self, queue="orders"):
        """Bodies of what waits."""
        return [body for body, _ in self.found(queue)]

    def empty(self, *queues):
        """Nothing waits there any more."""
        with self.direct() as connection:
            for name in queues:
                connection.administer("queue.purge", {"name": name})


@contextmanager
def copies_in(folder, lease_s=LEASE_S, **config):
    """Three copies, none of them booted, with an etcd of their own."""
    with ExitStack() as stack:
        decided_by = stack.enter_context(arbiter(folder, lease_s))
        made = Copies(folder, decided_by, stack, config)
        stack.enter_context(ended(list(made.nodes.values())))
        yield made
