"""A PostgreSQL server of the test's own: its own folder, a free port, ended by its process id."""

import contextlib
import functools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import psycopg
import pytest

from hms.testing.ports import free_port
from tests.support.server_data import copied, kept_folder

START_TIMEOUT_S = 120
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "40",
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
}
ROOT_IS_NOT_TAKEN = "postgres"
"""PostgreSQL refuses to run as root; Debian's package brings this user."""


def _programs():
    """The folder of initdb and postgres."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    newest = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parent.parent.name)
    )
    if not newest:
        pytest.fail("PostgreSQL is needed: scripts/test installs it (apt-get install postgresql)")
    return newest[-1].parent


def _owned(folder):
    """Give a folder to the user that the server runs as; that user, for subprocess."""
    if os.getuid() != 0:
        return {}
    user = pwd.getpwnam(ROOT_IS_NOT_TAKEN)
    os.chown(folder, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


@functools.cache
def _empty():
    """The data of a server that was never started."""
    folder = kept_folder("hms-postgres-empty-")
    options = ["--no-sync", "-A", "trust", "-U", "hms", "-E", "UTF8", "--locale=C"]
    command = [str(_programs() / "initdb"), *options, "-D", str(folder / "data")]
    subprocess.run(command, check=True, capture_output=True, cwd=folder, **_owned(folder))
    return folder / "data"


class Server:
    """One server, started and stopped as often as a test likes."""

    def __init__(self, folder, settings=None, follows=None, port=0):
        """follows: it is the standby of that server, and begins as its copy."""
        self.folder = folder
        self._settings = SETTINGS | (settings or {})
        self.port = port or free_port()
        self.url = f"postgresql://hms@127.0.0.1:{self.port}/postgres"
        self._process = None
        self._programs = _programs()
        self._prefixes = 0
        self._as = _owned(folder)
        if follows is None:
            copied(_empty(), folder / "data")
        else:
            self._copy(follows)

    def _copy(self, primary):
        command = [str(self._programs / "pg_basebackup"), "-D", str(self.folder / "data"), "-R"]
        command += ["-c", "fast", "-h", "127.0.0.1", "-p", str(primary.port), "-U", "hms"]
        limit_s = START_TIMEOUT_S
        subprocess.run(
            command, check=True, capture_output=True, cwd=self.folder, timeout=limit_s, **self._as
        )

    def new_prefix(self):
        """A prefix that no other test of this server uses."""
        self._prefixes += 1
        return f"t{self._prefixes}_"

    def start(self):
        """Return when it answers; what a killed one left behind may still be ending."""
        settings = [word for pair in self._settings.items() for word in ("-c", "=".join(pair))]
        command = [str(self._programs / "postgres"), "-D", str(self.folder / "data")]
        command += ["-p", str(self.port), "-k", str(self.folder), *settings]
        pause, until = threading.Event(), time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            assert time.monotonic() < until, (self.folder / "log").read_text()
            if self._process is None or self._process.poll() is not None:
                with (self.folder / "log").open("ab") as log:
                    self._process = subprocess.Popen(
                        command, stdout=log, stderr=log, cwd=self.folder, **self._as
                    )
            pause.wait(0.05)

    def _answers(self):
        with contextlib.suppress(psycopg.Error), psycopg.connect(self.url, connect_timeout=10):
            return True
        return False

    def stop(self, how=signal.SIGINT):
        """SIGINT: stop fast; SIGQUIT: as in a crash; SIGKILL: a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_TIMEOUT_S)
            self._process = None

    def ask(self, query, *arguments):
        """All rows of a query, over a connection of its own."""
        with psycopg.connect(self.url, autocommit=True) as session:
            cursor = session.execute(query, arguments)
            return cursor.fetchall() if cursor.description else []


SYNCHRONOUS = {"synchronous_standby_names": "*", "dynamic_shared_memory_type": "mmap"}
"""One that is lost is never booted again, and would leave what it has in /dev/shm."""


class ReplicatedServer:
    """A server and its standby, which has all that was committed; one address names both. Gone with
    close()."""

    def __init__(self):
        self._folders, self._servers = [], []
        try:
            self._add()
            self._add(self._servers[0])
        except BaseException:
            self.close()
            raise

    def _add(self, follows=None, port=0):
        folder = Path(tempfile.mkdtemp(prefix="hms-postgres-"))
        self._folders.append(folder)
        made = Server(folder, SYNCHRONOUS, follows, port)
        self._servers.append(made)
        made.start()

    @property
    def primary(self):
        """The one that is written to."""
        return self._servers[0]

    @property
    def ports(self):
        """Of both, which they keep."""
        return [one.port for one in self._servers]

    def stop(self, how=signal.SIGINT):
        """The primary, as Server.stop()."""
        self.primary.stop(how)

    def start(self):
        """The primary, in its place."""
        self.primary.start()

    def promote(self):
        """The primary is lost, and its standby is written to. What was lost comes back as a standby
        of it, without which nothing is committed."""
        lost = self._servers.pop(0)
        shutil.rmtree(lost.folder, ignore_errors=True)
        self.primary.ask("SELECT pg_promote()")
        self._add(self.primary, lost.port)

    def close(self):
        """End both."""
        for one in self._servers:
            one.stop(signal.SIGQUIT)
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def postgres_server(settings=None):
    """A server that answers, with these settings besides; gone with the block."""
    folder = Path(tempfile.mkdtemp(prefix="hms-postgres-"))
    try:
        server = Server(folder, settings)
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
