"""PostgreSQL with psycopg: a table as a queue, taken from with SKIP LOCKED; NOTIFY as a topic."""

import os
import pwd
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from bench.peers.server import HOST, Peer, as_user, free_port, served
from hms.boot.bench.load import Load, Sink
from hms.boot.bench.systems import Needs, Running

__all__ = ["POSTGRES", "PostgresDriver"]

_USER = "postgres"
_INSERT = "INSERT INTO bench (body) VALUES (%b)"
_TAKE = (
    "DELETE FROM bench WHERE id IN (SELECT id FROM bench ORDER BY id LIMIT {} "
    "FOR UPDATE SKIP LOCKED) RETURNING id, body"
)
_WAKE_S = 0.25
_BATCH_UNSYNCED = 1000
_START_S = 30.0


class PostgresDriver:
    """See hms.boot.bench.driver.Driver."""

    def __init__(self, address: str, options: dict[str, str]) -> None:  # noqa: ARG002
        self._port = int(address)
        self._db: Any = None
        self._listeners: list[Any] = []
        self._load: Load

    def _connect(self) -> Any:
        import psycopg  # noqa: PLC0415 - only where it is installed

        return psycopg.connect(
            host=HOST, port=self._port, user=_USER, dbname="postgres", autocommit=True
        )

    def open_sender(self, load: Load) -> None:
        """Connect; what is not durable need not be synced."""
        self._load, self._db = load, self._connect()
        if not load.is_durable:
            self._db.execute("SET synchronous_commit = off")

    def send_each(self, bodies: Iterable[bytes], times_ns: list[int]) -> None:
        """One INSERT and commit after the other."""
        execute, clock = self._db.execute, time.perf_counter_ns
        for body in bodies:
            begin = clock()
            execute(_INSERT, (body,), prepare=True)
            times_ns.append(clock() - begin)

    def send_pipelined(self, bodies: Iterable[bytes]) -> None:
        """A transaction for each window."""
        waiting = iter(bodies)
        while batch := list(islice(waiting, self._load.window)):
            self._send(batch)

    def send_timed(self, bodies: Iterable[bytes]) -> None:
        """A transaction for each."""
        for body in bodies:
            self._send([body])

    def _send(self, batch: Sequence[bytes]) -> None:
        is_topic = self._load.destination.startswith("topic:")
        with self._db.transaction(), self._db.pipeline():
            cursor = self._db.cursor()
            if is_topic:
                rows = [("bench", body.hex()) for body in batch]
                cursor.executemany("SELECT pg_notify(%s, %s)", rows)
            else:
                cursor.executemany(_INSERT, [(body,) for body in batch])
                cursor.execute("NOTIFY bench")

    def open_receiver(self, load: Load) -> None:
        """Connect and listen."""
        self.open_sender(load)
        self._listeners = [self._connect() for _ in range(load.fan)]
        for one in self._listeners:
            one.execute("LISTEN bench")

    def receive(self, sink: Sink) -> None:
        """Read and delete in one transaction what is acknowledged together."""
        if self._load.destination.startswith("topic:"):
            self._receive_topic(sink)
            return
        count = (self._load.ack_every or 1) if self._load.is_durable else _BATCH_UNSYNCED
        cursor, take = self._db.cursor(binary=True), _TAKE.format(count)
        while not sink.is_full:
            rows = cursor.execute(take, prepare=True).fetchall()
            for _, body in sorted(rows):
                sink.take(body)
            if not rows:
                list(self._listeners[0].notifies(timeout=_WAKE_S, stop_after=1))

    def _receive_topic(self, sink: Sink) -> None:
        while not sink.is_full:
            ready, _, _ = select.select(self._listeners, [], [], self._load.timeout_s)
            for one in ready:
                for notice in one.notifies(timeout=0, stop_after=1):
                    sink.take(bytes.fromhex(notice.payload))

    def close(self) -> None:
        """Disconnect."""
        for one in (*self._listeners, self._db):
            one.close()


@dataclass(frozen=True, kw_only=True)
class Postgres(Peer):
    """A PostgreSQL server with its defaults."""

    @contextmanager
    def boot(self, folder: Path, needs: Needs) -> Iterator[Running]:
        """Make a cluster and start it."""
        port, cluster = free_port(), folder / "cluster"
        folder.chmod(0o755)
        cluster.mkdir(mode=0o700)
        log = folder / "server.log"
        log.touch()
        if os.geteuid() == 0:
            entry = pwd.getpwnam(_USER)
            os.chown(cluster, entry.pw_uid, entry.pw_gid)
        begin = [self.program("initdb"), "-D", cluster, "-U", _USER, "--auth=trust"]
        subprocess.run(
            [str(word) for word in begin],
            check=True,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            **as_user(_USER),
        )
        program = str(self.program("postgres"))
        command = [program, "-D", str(cluster), "-p", str(port), "-h", HOST, "-k", str(cluster)]
        with served(command, folder, port, user=_USER, stop=signal.SIGINT) as process:
            self._make_table(port, needs)
            yield Running(str(port), (process.pid,))

    def _make_table(self, port: int, needs: Needs) -> None:
        """The port opens before the server takes connections."""
        import psycopg  # noqa: PLC0415 - only where it is installed

        driver, until = PostgresDriver(str(port), {}), time.monotonic() + _START_S
        while True:
            try:
                db = driver._connect()  # noqa: SLF001 - its own
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(_WAKE_S)
                continue
            kind = "" if needs.is_durable else "UNLOGGED"
            db.execute(f"CREATE {kind} TABLE bench (id bigserial PRIMARY KEY, body bytea)")
            db.close()
            return


POSTGRES = Postgres(
    name="postgres",
    driver="bench.peers.postgres:PostgresDriver",
    durability="INSERT and commit, fsync on: synced before it is confirmed",
    is_synced=True,
    programs=("initdb", "postgres"),
    modules=("psycopg",),
    folders=("usr/lib/postgresql/*/bin",),
    workloads=frozenset({"W1", "W2", "W2s", "W3", "W3b", "W4", "W4r", "W5", "W6"}),
)
