"""Two machines whose store is one PostgreSQL, under load with files: the server is stopped, crashes
or is killed, the connection to it is cut in a commit, and the active machine stands still past its
lease, so that the other one takes over.

Files lie beside the node: both machines have one folder for them. HMS_HA=full: 60 faults;
HMS_FAULTS=N: so many. HMS_HA_SEED=N has the faults of a run again.
"""

import hashlib
import os
import random
import signal
import socket
import threading
from contextlib import closing, suppress

import pytest
from database_rig import CONNECT
from faults_rig import PAUSE_S, Steady

import hms
from hms.testing.nodes import TestNode
from tests.acceptance.ha_rig import WAIT_S, active_of, ended
from tests.acceptance.test_ha_shared_store import is_active
from tests.support.books import Books
from tests.support.postgres import postgres_server
from tests.support.waiting import wait_until

IS_FULL = os.environ.get("HMS_HA") == "full"
FAULTS = int(os.environ.get("HMS_FAULTS", "60")) if IS_FULL else 0
LEASE_S = 6
FILE_BYTES = 300_000
CHUNK = 1 << 16
MESSAGE, COMMITTED = b"order-", b"COMMIT\0"
"""What a machine says in a transaction, which leaves at once; and what the server answers."""
QUEUES = {"queue": {"orders": {}, "ledger": {}, "announced": {}, "files": {}}}


class Cutter:
    """Between machines and their database; it cuts a connection in its next commit."""

    def __init__(self, port):
        self._port, self._listener = port, socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._guard, self._ends = threading.Lock(), []
        self._armed = ""
        self.cuts = 0
        self._start(self._accept)

    def cut_next(self, where):
        """Nothing or half of it arrives; answered: it is done, and nobody knows. What tells
        whether it was cut."""
        with self._guard:
            self._armed, wanted = where, self.cuts + 1
        return lambda: self.cuts >= wanted

    def close(self):
        """No connection more."""
        with self._guard:
            ends = [*self._ends, self._listener]
        for one in ends:
            _end(one)

    @staticmethod
    def _start(job, *arguments):
        threading.Thread(target=job, args=arguments, daemon=True).start()

    def _accept(self):
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._port), 5)
                except OSError:  # the server is away
                    _end(near)
                    continue
                with self._guard:
                    self._ends += (near, far)
                self._start(self._carry, near, far, {"nothing": 0, "half": CHUNK}, MESSAGE)
                self._start(self._carry, far, near, {"answered": 0}, COMMITTED)

    def _carry(self, one, other, cuts, sign):
        with suppress(OSError):
            while data := one.recv(CHUNK):
                with self._guard:
                    is_cut = self._armed in cuts and sign in data
                    if is_cut:
                        passed = data[: min(cuts[self._armed], len(data) // 2)]
                        self._armed, self.cuts = "", self.cuts + 1
                if is_cut:
                    other.sendall(passed)
                    break
                other.sendall(data)
        for end in (one, other):
            _end(end)


def _end(one):
    """Both ends learn of it; who still reads it is woken before it is closed."""
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


class WithFiles(Steady):
    """Each file is compared with what was sent."""

    def __init__(self, addresses, folder):
        self.files, self.folder, self.saved = Books(), folder, 0
        super().__init__(addresses)
        self.start(self.send_files)
        self.start(self.receive_files)

    def send_files(self):
        with hms.connect(self.address, **CONNECT) as conn, conn.session() as session:
            producer, source = session.producer("files"), self.folder / "source"
            while not self.stopped.wait(5 * PAUSE_S):
                data = os.urandom(FILE_BYTES)
                body = hashlib.sha256(data).hexdigest()
                source.write_bytes(data)
                self.files.invoke([body])
                producer.send(hms.Message.file(source))
                self.files.ok([body])

    def receive_files(self):
        with hms.connect(self.address, **CONNECT) as conn, conn.session() as session:
            consumer, target = session.consumer("files"), self.folder / "saved"
            while not self.drained.is_set():
                if (message := consumer.receive(timeout_s=0.2)) is None:
                    continue
                message.save(target)
                body = hashlib.sha256(target.read_bytes()).hexdigest()
                target.unlink()
                self.files.received(body, message.redelivered, message.delivery_count)
                self.saved += 1

    def await_flow(self, more):
        """And files saved."""
        super().await_flow(more)
        self._await(lambda: self.saved, 2)

    def finish(self):
        """All files are whole, and there once."""
        figures = super().finish()
        verdict = self.files.verdict()
        assert verdict.is_clean, verdict
        return {**figures, "files": verdict.confirmed}


class Place:
    """Both machines, their server and what happens to them."""

    def __init__(self, folder, server, cutter, dice):
        self.server, self._cutter, self._dice = server, cutter, dice
        url = server.url.replace(f":{server.port}/", f":{cutter.port}/")
        node = {"database": url, "database_lease_s": LEASE_S}
        self.nodes = []
        for name in "ab":
            own = folder / name
            own.mkdir()
            config = {"hms": QUEUES, "node": {"node1": node}}
            self.nodes.append(TestNode(own, folder / "store", config, (), (), ()))

    @property
    def epoch(self):
        """How often the tables have been taken."""
        return self.server.ask("SELECT epoch FROM node1_meta")[0][0]

    def stopped(self):
        """It comes back at once: no outage of the node."""
        self.server.stop(self._dice.choice((signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)))
        self.server.start()
        assert all(one.is_running for one in self.nodes)  # a standby waits, too

    def cut(self):
        """Whether it took effect is read back."""
        wait_until(
            self._cutter.cut_next(self._dice.choice(("nothing", "half", "answered"))), WAIT_S
        )

    def pause(self):
        """The other one has the tables when it goes on."""
        before, one = self.epoch, active_of(self.nodes)
        one.pause()
        wait_until(lambda: self.epoch > before, WAIT_S)
        one.resume()
        wait_until(lambda: not one.is_running or not is_active(one), WAIT_S)
        if not one.is_running:  # the first one, which nobody booted as a standby
            assert "HMS-5020" in one.log
            one.boot(standby=True)


KINDS = (Place.stopped, Place.cut, Place.pause)
SHORT = (Place.stopped, Place.cut)
"""A pause is in test_database_node.py, too."""


@pytest.mark.timeout(300 + 60 * FAULTS)
def test_whatever_happens_to_a_shared_database_nothing_is_lost_and_files_are_whole(
    tmp_path, record_property
):
    """No client is told of anything; the machine that stood still confirms nothing afterwards."""
    seed = int(os.environ.get("HMS_HA_SEED", random.randrange(1 << 32)))
    dice, figures = random.Random(seed), {"seed": seed}
    record_property("figures", figures)
    with postgres_server() as server, closing(Cutter(server.port)) as cutter:
        place = Place(tmp_path, server, cutter, dice)
        with ended(place.nodes):
            active, standby = place.nodes
            active.boot()
            standby.boot(standby=True)
            first = place.epoch
            addresses = [one.address for one in place.nodes]
            with closing(WithFiles(addresses, tmp_path)) as load:
                for number in range(FAULTS or len(SHORT)):
                    load.await_flow(20)
                    (dice.choice(KINDS) if FAULTS else SHORT[number])(place)
                    figures["faults"] = number + 1
                load.await_flow(20)
                figures |= load.finish()
            figures |= {"cuts": cutter.cuts, "take-overs": place.epoch - first}
