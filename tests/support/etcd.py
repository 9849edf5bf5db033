"""An etcd of the test's own: one member, its own folder, free ports, ended by its process."""

import shutil
import subprocess
import time
import urllib.request

import pytest

from hms.testing.ports import free_port

START_TIMEOUT_S = 60
BRIEF = ["--election-timeout", "100", "--heartbeat-interval", "20"]
"""So that a lease may be as short as a second."""


class Etcd:
    """Started and stopped as often as a test likes; it keeps what it has."""

    def __init__(self, folder):
        found = shutil.which("etcd")
        if found is None:
            pytest.fail("etcd is needed: scripts/test installs it (apt-get install etcd-server)")
        self._folder, self._program = folder, found
        self._client, self._peer = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self._client}"
        self._process = None

    def start(self):
        """Return when it answers."""
        peer = f"http://127.0.0.1:{self._peer}"
        command = [self._program, "--data-dir", str(self._folder / "data"), "--name", "one", *BRIEF]
        command += ["--listen-client-urls", self.url, "--advertise-client-urls", self.url]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", f"one={peer}", "--logger", "zap"]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        until = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < until

    def _answers(self):
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=2) as said:
                return b"true" in said.read()
        except OSError:
            return False

    def stop(self):
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(START_TIMEOUT_S)
