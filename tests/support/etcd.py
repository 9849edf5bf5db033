"""An etcd of the test's own: one member, its own folder, free ports, ended by its process."""

import base64
import json
import shutil
import ssl
import subprocess
import time
import urllib.request

import pytest

from hms.testing.ports import free_port

START_TIMEOUT_S = 120
BRIEF = ["--election-timeout", "100", "--heartbeat-interval", "20"]
"""So that a lease may be as short as a second."""


class Etcd:
    """Started and stopped as often as a test likes; it keeps what it has."""

    def __init__(self, folder, certificates=None):
        """certificates: folder of an Authority; then it is encrypted, and asks its clients for
        theirs."""
        found = shutil.which("etcd")
        if found is None:
            pytest.fail("etcd is needed: scripts/test installs it (apt-get install etcd-server)")
        self._folder, self._program = folder, found
        self._client, self._peer = free_port(), free_port()
        self._certificates = certificates
        self.url = f"{'https' if certificates else 'http'}://127.0.0.1:{self._client}"
        self._process = None

    def start(self):
        """Return when it answers."""
        peer = f"http://127.0.0.1:{self._peer}"
        command = [self._program, "--data-dir", str(self._folder / "data"), "--name", "one", *BRIEF]
        command += ["--listen-client-urls", self.url, "--advertise-client-urls", self.url]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", f"one={peer}", "--logger", "zap"]
        if folder := self._certificates:
            command += ["--cert-file", f"{folder}/good.pem", "--key-file", f"{folder}/good.key"]
            command += ["--trusted-ca-file", f"{folder}/ca.pem", "--client-cert-auth"]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        until = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < until
            time.sleep(0.02)

    def _answers(self):
        try:
            health, context = f"{self.url}/health", None
            if folder := self._certificates:
                context = ssl.create_default_context(cafile=f"{folder}/ca.pem")
                context.load_cert_chain(f"{folder}/good.pem", f"{folder}/good.key")
            with urllib.request.urlopen(health, timeout=2, context=context) as said:
                return b"true" in said.read()
        except OSError:
            return False

    def keys(self, prefix):
        """All keys that begin so, with their values, as the gateway gives them."""
        first, last = prefix.encode(), prefix.encode()[:-1] + bytes([prefix.encode()[-1] + 1])
        coded = [base64.b64encode(one).decode() for one in (first, last)]
        asked = json.dumps({"key": coded[0], "range_end": coded[1]}).encode()
        with urllib.request.urlopen(f"{self.url}/v3/kv/range", asked, timeout=60) as said:
            return [(one["key"], one.get("value")) for one in json.load(said).get("kvs", [])]

    def stop(self):
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(START_TIMEOUT_S)
