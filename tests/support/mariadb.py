"""A MariaDB server of the test's own: its own folder, a free port, ended by its process id."""

import contextlib
import functools
import getpass
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pymysql
import pytest

from hms.testing.ports import free_port
from tests.support.server_data import copied, kept_folder

START_TIMEOUT_S = 120
NO_AIO = ("--innodb-use-native-aio=0",)
"""The kernel has few places for it, and several servers run at once."""
SETTINGS = (
    "--bind-address=127.0.0.1",
    "--skip-log-bin",
    "--innodb-buffer-pool-size=32M",
    "--innodb-flush-method=nosync",  # nothing cuts the power
    "--innodb-log-file-size=32M",
    "--max-connections=300",
    "--performance-schema=OFF",
    "--skip-name-resolve",
)


def _program(name):
    """Where a program of the server is; Debian keeps the server itself off an ordinary PATH."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if not found:
        pytest.fail("MariaDB is needed: scripts/test installs it (apt-get install mariadb-server)")
    return found


@functools.cache
def _empty():
    """The data of a server that was never started."""
    folder = kept_folder("hms-mariadb-empty-")
    command = [_program("mariadb-install-db"), "--no-defaults", f"--datadir={folder / 'data'}"]
    command += ["--auth-root-authentication-method=normal", "--skip-test-db"]
    command += [f"--user={getpass.getuser()}", "--innodb-log-file-size=32M", *NO_AIO]
    command += [f"--tmpdir={folder}"]  # a server that starts removes what others have in its own
    made = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    return folder / "data"


class Server:
    """One server, started and stopped as often as a test likes."""

    def __init__(self, folder, settings=()):
        self.folder = folder
        self.port = free_port()
        self.url = f"mariadb://root@127.0.0.1:{self.port}/hms"
        self._settings = settings
        self._process = None
        self._pause = threading.Event()
        copied(_empty(), folder / "data")

    def start(self):
        """Return when it answers; what a killed one left behind may still be ending."""
        until = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            assert time.monotonic() < until, (self.folder / "log").read_text()
            if self._process is None or self._process.poll() is not None:
                self._process = self._spawn()
            self._pause.wait(0.05)

    def _spawn(self):
        folder = self.folder
        command = [_program("mariadbd"), "--no-defaults", f"--datadir={folder / 'data'}"]
        command += [f"--socket={folder / 'socket'}", f"--port={self.port}"]
        command += [f"--pid-file={folder / 'pid'}", f"--user={getpass.getuser()}"]
        command += [f"--tmpdir={folder}"]
        with (folder / "log").open("ab") as log:
            return subprocess.Popen(
                [*command, *SETTINGS, *NO_AIO, *self._settings], stdout=log, stderr=log, cwd=folder
            )

    def _answers(self):
        with contextlib.suppress(pymysql.Error), contextlib.closing(self.connect("")) as session:
            session.cursor().execute("CREATE DATABASE IF NOT EXISTS hms")
            return True
        return False

    def connect(self, database="hms"):
        """A session with autocommit."""
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user="root",
            database=database or None,
            autocommit=True,
            connect_timeout=30,
            ssl_disabled=True,
        )

    def stop(self, how=signal.SIGTERM):
        """SIGTERM: stop in order; SIGKILL: a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_TIMEOUT_S)
            self._process = None

    def ask(self, query, *arguments):
        """All rows of a query, over a connection of its own."""
        with contextlib.closing(self.connect()) as session, session.cursor() as cursor:
            cursor.execute(query, arguments)
            return list(cursor.fetchall())


@contextlib.contextmanager
def mariadb_server(settings=()):
    """A server that answers; gone with the block."""
    folder = Path(tempfile.mkdtemp(prefix="hms-mariadb-"))
    try:
        server = Server(folder, settings)
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGKILL)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
