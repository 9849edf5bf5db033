"""The process that ends branches in doubt; the node starts it when hms.conf has an [rm.NAME].

    python -P -m tpmon.xa.recoverer --ready-fd N --until-eof ADDRESS

It is a client of the node: it may die at any time, and so may the node and every database. What it
finds it reports to the node, for `hms status`.
"""

import argparse
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from hms.client.core.blocking_connection import Connection
from hms.client.core.log_lines import start_log
from hms.client.core.log_output import await_end_of_node
from hms.errors.tree import HmsError
from tpmon.environment import SECRET_VARIABLE
from tpmon.tx.connection_place import LIST_VERB, Blocking
from tpmon.tx.coordinator_identity import identity_of
from tpmon.xa import decisions
from tpmon.xa.recovery import Recovery, Waiting
from tpmon.xa.recovery_rounds import Watch
from tpmon.xa.resource_opening import Definition, open_resource

__all__ = ["Recoverer", "main"]

REPORT_VERB = "resource.report"
REPORTED_MAX = 50
REPORT_S = 1.0
NAME = "_recovery"

log = logging.getLogger("hms.recovery")


class Recoverer:
    """Watches every resource manager of a node until stop is set."""

    def __init__(self, connection: Connection, stop: threading.Event) -> None:
        self._node = Blocking(connection)
        self._stop = stop
        self._recovery = Recovery(self._node, partial(identity_of, self._node))
        told = self._node.administer(LIST_VERB)
        definitions = [Definition(**one) for one in told["resources"]]
        self._watches = [
            Watch(self._recovery, d.name, partial(open_resource, d), told["interval_s"])
            for d in definitions
            if d.kind != "sqlite"
        ]
        self._named = {d.name for d in definitions}

    def run(self) -> None:
        """Until stop is set, or the node is lost for good."""
        threads = [
            threading.Thread(target=self._guard(watch), name=watch.name, daemon=True)
            for watch in self._watches
        ]
        for thread in threads:
            thread.start()
        while not self._stop.wait(REPORT_S):
            self.report()

    def _guard(self, watch: Watch) -> Callable[[], None]:
        """A watch; a fault that nobody foresaw ends the process, and the node starts another."""

        def run() -> None:
            try:
                watch.run(self._stop)
            except Exception:
                log.exception("recovery of %s failed", watch.name)
                self._stop.set()

        return run

    def report(self) -> None:
        """Tell the node what waits and why."""
        try:
            told = json.dumps(self.describe())
            self._node.administer(REPORT_VERB, {"report": told})
        except HmsError as error:
            log.warning("recovery cannot report: %s", error)

    def describe(self) -> dict[str, Any]:
        """What waits and why."""
        waiting = [w for watch in self._watches for w in watch.waiting]
        down = {w.name: w.reason for w in self._watches if w.reason}
        for decision in self._recovery.left_over():
            if decision.fault:
                waiting.append(Waiting("", decision.gtrid, decision.fault))
            for p in decision.participants:
                why = p.note if decisions.is_settled(p) else self._why(p.resource, down)
                if why:
                    waiting.append(Waiting(p.resource, decision.gtrid, why))
        return {
            "resources": [watch.describe() for watch in self._watches],
            "waiting": len(waiting),
            "transactions": [
                {"gtrid": w.gtrid.hex(), "resource": w.resource, "why": w.reason[:200]}
                for w in waiting[:REPORTED_MAX]
            ],
        }

    def _why(self, resource: str, down: dict[str, str]) -> str:
        if resource not in self._named:
            return f"there is no [rm.{resource}] in hms.conf any more"
        return f"{resource} is down: {down[resource]}" if resource in down else ""


def main(arguments: list[str] | None = None) -> int:
    """The command in the module's text."""
    given = _parse(arguments)
    start_log("recovery", "")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if given.until_eof:
        threading.Thread(target=_await_eof, args=(stop,), daemon=True).start()
    try:
        name = f"{NAME}:{os.getpid()}"
        secret = bytes.fromhex(os.environ.pop(SECRET_VARIABLE, ""))
        with Connection(given.address, client_name=name, client_secret=secret).open() as connection:
            recoverer = Recoverer(connection, stop)
            _tell_ready(given.ready_fd)
            recoverer.run()
    except HmsError as error:
        log.critical("%s", error, extra={"event": "recoverer_failed"})
        return 1
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -P -m tpmon.xa.recoverer")
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--until-eof", action="store_true")
    parser.add_argument("address", metavar="ADDRESS")
    return parser.parse_args(arguments)


def _tell_ready(fd: int | None) -> None:
    if fd is not None:
        os.write(fd, b"ready\n")
        os.close(fd)


def _await_eof(stop: threading.Event) -> None:
    """The node is gone, however that came: its next life starts another process."""
    await_end_of_node(0)
    stop.set()


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # a database that does not answer must not keep the process
