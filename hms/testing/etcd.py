"""An etcd of a test's own: one member, its own folder, free ports, ended by its process."""

import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Final

from hms.errors.catalogue import ArbiterUnavailable
from hms.testing.ports import free_port

__all__ = ["TestEtcd"]

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 10.0
LOOK_S: Final = 0.05


class TestEtcd:
    """The arbiter of copies in a test. It keeps what it has, and its port, over stop() and
    start()."""

    __test__ = False  # pytest would take the name for a test class

    def __init__(self, folder: Path) -> None:
        """ArbiterUnavailable where no etcd is installed."""
        program = shutil.which("etcd")
        if program is None:
            detail = (
                "no etcd is installed here (Debian: apt install etcd-server), and none is named"
            )
            raise ArbiterUnavailable(endpoint="etcd", detail=detail)
        self._program, self._folder = program, folder
        self.url = f"http://127.0.0.1:{free_port()}"
        self._peer = f"http://127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return when it answers. ArbiterUnavailable where it does not."""
        if self.is_running:
            return
        peer = self._peer
        command = [self._program, "--data-dir", str(self._folder / "etcd"), "--name", "one"]
        command += ["--listen-client-urls", self.url, "--advertise-client-urls", self.url]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", f"one={peer}", "--logger", "zap"]
        with (self._folder / "etcd.log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                self.stop()
                detail = f"it did not start; {self._folder / 'etcd.log'} tells why"
                raise ArbiterUnavailable(endpoint=self.url, detail=detail)
            time.sleep(LOOK_S)

    def stop(self) -> None:
        """End it: no copy takes over until it is started again."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def is_running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=2) as said:  # noqa: S310 - our own URL
                return b"true" in said.read()
        except OSError:
            return False
