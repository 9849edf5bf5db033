"""The process that carries out the rules table of a [dlq.NAME]; the node starts it.

    python -P -m hms.boot.letter_handler --config FILE --name NAME --ready-fd N --until-eof ADDRESS

It is a client of the node with a user of its own, and may die at any time: each of its actions is
one command, conditional on the letter still being there. It does not end when its table's WAIT says
so, but begins anew after RETRYINT.
"""

import argparse
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import hms
from hms.boot.config import load
from hms.boot.entries import LETTERS, LetterHandler
from hms.boot.hardening import keep_memory_private
from hms.boot.secrets_of import password_of
from hms.client.core.log_lines import start_log
from hms.client.core.log_output import await_end_of_node
from hms.client.letter_rules.rules_handler import Done, RulesHandler
from hms.client.letter_rules.rules_table import Table, read_table
from hms.engine.selector.selector_fields import checked_selector
from hms.errors.catalogue import ConfigError
from hms.errors.tree import HmsError
from tpmon.environment import SECRET_VARIABLE

__all__ = ["main"]

FAULTS_LOGGED_S = 60.0

log = logging.getLogger("hms.letters")


class _Stopped(Exception):  # noqa: N818 - it is no fault
    """The node wants it to end."""


class _Shift:
    """One handler, until stop is set. Of equal faults one a minute is logged."""

    def __init__(self, connection: Any, entry: LetterHandler, stop: threading.Event) -> None:
        self._connection, self._entry, self._stop = connection, entry, stop
        self._logged: dict[tuple[int, str], float] = {}
        self.table = _table(entry)

    def run(self) -> None:
        """Again and again: what its WAIT ends is begun anew."""
        try:
            while True:
                worker = RulesHandler(
                    self._connection,
                    self.table,
                    self._entry.queue,
                    now_s=time.monotonic,
                    time_ms=lambda: int(time.time() * 1000),
                    sleep=self._wait,
                    told=self._told,
                    new_table=self._look,
                )
                worker.run()
                self._wait(self.table.control.retry_s)
        except _Stopped:
            return

    def _wait(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise _Stopped

    def _look(self) -> None:
        """Between two looks of the handler; another table is read by another process."""
        if self._stop.is_set():
            raise _Stopped

    def _told(self, one: Done) -> None:
        if not one.fault:
            log.debug("%s: line %d %s %s", one.letter, one.line, one.action, one.to)
            return
        now_s, key = time.monotonic(), (one.line, one.fault)
        if now_s - self._logged.get(key, float("-inf")) >= FAULTS_LOGGED_S:
            self._logged[key] = now_s
            log.warning("%s: line %d %s failed: %s", one.letter, one.line, one.action, one.fault)
        if len(self._logged) > 1000:  # noqa: PLR2004 - whatever the texts of faults are
            self._logged.clear()


def _table(entry: LetterHandler) -> Table:
    """ConfigError that names each fault of the table."""
    try:
        text = entry.rules.read_text()
    except (OSError, UnicodeDecodeError) as fault:
        raise ConfigError(report=f"{entry.rules} cannot be read: {fault}") from fault
    return read_table(text, str(entry.rules), checked_selector)


def main(arguments: list[str] | None = None) -> int:
    """The command in the module's text."""
    keep_memory_private()  # its password is in its environment
    given = _parse(arguments)
    start_log("letter handler", given.name)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if given.until_eof:
        threading.Thread(target=_await_eof, args=(stop,), daemon=True).start()
    try:
        config = load(given.config)
        entry = config.letter_handlers.get(given.name)
        if entry is None:
            raise ConfigError(report=f"there is no [dlq.{given.name}] any more")
        key = f"[dlq.{entry.name}] password"
        password = password_of(
            entry.password, config.path.parent, key, lambda why: ConfigError(report=why)
        )
        os.environ.pop(SECRET_VARIABLE, None)
        name = f"{LETTERS}{entry.name}:{os.getpid()}"
        who = entry.user or "", password or ""
        with hms.connect(
            given.address, profile="", client_name=name, user=who[0], password=who[1]
        ) as connection:
            shift = _Shift(connection, entry, stop)
            log.info("%s: %d rules", entry.rules, len(shift.table.rules))
            if given.ready_fd is not None:
                os.write(given.ready_fd, b"ready\n")
                os.close(given.ready_fd)
            shift.run()
    except HmsError as error:
        log.critical("%s", error)
        return 1
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -P -m hms.boot.letter_handler")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--until-eof", action="store_true")
    parser.add_argument("address", metavar="ADDRESS")
    return parser.parse_args(arguments)


def _await_eof(stop: threading.Event) -> None:
    """The node is gone, however that came: its next life starts another process."""
    await_end_of_node(0)
    stop.set()


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)
