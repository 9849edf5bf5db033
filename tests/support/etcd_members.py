"""An etcd of three members of the test's own; each is started, stopped and paused alone."""

import os
import shutil
import signal
import subprocess
import urllib.request
from email.utils import parsedate_to_datetime

import pytest

from hms.testing.ports import free_port
from tests.support.waiting import wait_until

READY = b"serving client traffic"
START_TIMEOUT_S = 120
HERE = (("127.0.0.1", ()),) * 3


class Member:
    """One of them. It is asked at the loopback of its machine, which may be a namespace."""

    def __init__(self, folder, number, host, prefix):
        self.name, self.peer = f"m{number}", f"http://{host}:{free_port()}"
        self.url = f"http://127.0.0.1:{free_port()}"
        self._folder, self._log = folder / self.name, folder / f"{self.name}.log"
        self._log.touch()
        self._prefix, self._process, self._seen = prefix, None, 0

    def launch(self, program, members):
        """Returns at once: it is ready when enough of the others are there."""
        together = ",".join(f"{one.name}={one.peer}" for one in members)
        command = [*self._prefix, program, "--data-dir", str(self._folder), "--name", self.name]
        command += ["--listen-client-urls", self.url, "--advertise-client-urls", self.url]
        command += ["--listen-peer-urls", self.peer, "--initial-advertise-peer-urls", self.peer]
        command += ["--initial-cluster", together, "--logger", "zap"]
        self._seen = self._log.stat().st_size
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    @property
    def is_running(self):
        return self._process is not None and self._process.poll() is None

    @property
    def is_ready(self):
        """Since it was started last."""
        assert self.is_running, self._log.read_text()
        return READY in self._log.read_bytes()[self._seen :]

    @property
    def pid(self):
        return self._process.pid

    def time_s(self):
        """What its clock says, in whole seconds."""
        with urllib.request.urlopen(f"{self.url}/version", timeout=START_TIMEOUT_S) as said:
            return parsedate_to_datetime(said.headers["Date"]).timestamp()

    def pause(self):
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self):
        os.kill(self._process.pid, signal.SIGCONT)

    def stop(self):
        """A crash."""
        self._process.kill()
        self._process.wait(START_TIMEOUT_S)


class EtcdMembers:
    """All three. places: the host of each, and what runs a program there."""

    def __init__(self, folder, places=HERE):
        found = shutil.which("etcd")
        if found is None:
            pytest.fail("etcd is needed: scripts/test installs it (apt-get install etcd-server)")
        self._program = found
        self.members = [Member(folder, i, *place) for i, place in enumerate(places, 1)]

    def start(self):
        """Those that do not run; return when they answer."""
        started = [one for one in self.members if not one.is_running]
        for one in started:
            one.launch(self._program, self.members)
        wait_until(lambda: all(one.is_ready for one in started), START_TIMEOUT_S)

    def stop(self):
        """Those that run."""
        for one in self.members:
            if one.is_running:
                one.stop()
