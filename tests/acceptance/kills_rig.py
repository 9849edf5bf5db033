"""What the tests under kills share: who kills server processes, and how large a run is."""

import contextlib
import os
import random
import signal
import threading

from services_rig import WAIT_S

import hms

LEAST = 2


def sized(name, ordinary):
    """How many: ordinary in an ordinary run, else what the environment says."""
    return int(os.environ.get(name, ordinary))


class Killer:
    """Kills one of a node's server processes, chosen at random, every so often, while at least two
    offer each service: on a slow machine a process needs longer than a period to be there again."""

    def __init__(self, address, period_s, seed=1):
        self.kills = 0
        self._address, self._period_s = address, period_s
        self._random, self._stop = random.Random(seed), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        with hms.connect(self._address) as conn:
            while not self._stop.wait(self._period_s * self._random.uniform(0.5, 1.5)):
                self._kill_one(conn)

    def _kill_one(self, conn):
        if min((one["servers"] for one in conn.administer("service.list")), default=0) < LEAST:
            return
        pids = [pid for one in conn.administer("server.list") for pid in one["pids"]]
        if pids:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                os.kill(self._random.choice(pids), signal.SIGKILL)
                self.kills += 1

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(WAIT_S)
