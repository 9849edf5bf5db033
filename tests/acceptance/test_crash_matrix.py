"""The crash matrix: every participant is killed before and after every step of a transaction.

    HMS_MATRIX=5 pytest tests/acceptance/test_crash_matrix.py --timeout 3600     all cells, 5 times
    python -m tests.acceptance.test_crash_matrix --update        write the table of the reference

An ordinary run shows a sample that differs from day to day.
"""

import datetime as dt
import os
import random
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import hms
from hms.testing import node
from tests.acceptance.bank_rig import ACCOUNTS, BALANCE, bank
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "reference" / "transactions.md"
TIMES = int(os.environ.get("HMS_MATRIX", "0"))
SAMPLE = 6
STEPS = ("start", "end", "prepare", "decision", "commit", "forget")
POINTS = [f"{when} {step}" for step in STEPS for when in ("before", "after")]
KILLED = ("client", "node", "PostgreSQL", "MariaDB")
CELLS = [(point, who) for point in POINTS for who in KILLED]
COMMITTED, ROLLED_BACK = "committed", "rolled back"


def expected(point, who):
    """What becomes of the transaction: the decision is what counts."""
    when, step = point.split()
    if step in ("start", "end"):
        # A session that dies before its branch begins is replaced, and nobody notices.
        return COMMITTED if _is_harmless(point, who) else ROLLED_BACK
    if step == "prepare":
        if when == "before":
            return ROLLED_BACK
        return COMMITTED if who in ("PostgreSQL", "MariaDB") else ROLLED_BACK
    if step == "decision" and when == "before":
        return COMMITTED if who in ("PostgreSQL", "MariaDB") else ROLLED_BACK
    return COMMITTED


def _is_harmless(point, who):
    """PostgreSQL begins first, so whoever is killed before its own turn begins anew."""
    if point == "before start":
        return who != "client"
    return point == "after start" and who in ("node", "MariaDB")


@contextmanager
def system():
    """Databases and a node, for all cells."""
    with bank() as both, node(config=both.config(receipts={})) as started:
        yield both, started


@pytest.fixture(scope="module")
def running():
    with system() as made:
        yield made


class Cell:
    """One transfer, one kill, and what came of it."""

    def __init__(self, both, started, point, who, number):
        self._both, self._started = both, started
        self._point, self._who = point, who
        self.name = f"{point} {who} {number} {random.getrandbits(32):08x}".replace(" ", "-")

    def run(self):
        """The outcome, the same everywhere."""
        said = self._transfer()
        wait_until(self._both.is_settled, 60)
        with hms.connect(self._started.address) as conn:
            wait_until(lambda: not self._left_over(conn), 60)
            outcome = self._outcome(conn)
        if said.startswith(COMMITTED):
            assert outcome == COMMITTED, said
        elif said.startswith(ROLLED_BACK):
            assert outcome == ROLLED_BACK, said
        assert self._both.total() == 2 * ACCOUNTS * BALANCE
        return outcome

    def _transfer(self):
        command = [sys.executable, "-m", "tests.acceptance.matrix_client"]
        command += [self._started.address, self.name, self._point]
        command += ["--die"] if self._who == "client" else []
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        ) as client:
            line = client.stdout.readline()
            if line.startswith("AT"):
                self._kill()
                client.stdin.write("GO\n")
                client.stdin.flush()
                line = client.stdout.readline()
            client.wait(60)
        return line.strip()

    def _kill(self):
        if self._who == "node":
            self._started.kill()
            self._started.boot()
        elif self._who == "PostgreSQL":
            self._both.postgres.stop(signal.SIGQUIT)
            self._both.postgres.start()
        else:
            self._both.mariadb.stop(signal.SIGKILL)
            self._both.mariadb.start()

    def _left_over(self, conn):
        """Decisions that nobody has forgotten yet, and branches of the node."""
        return [b for b in conn.administer("transaction.list") if "xid" in b]

    def _outcome(self, conn):
        west, east = (self.name in entries for entries in self._both.entries())
        with conn.session() as session, session.browser(hms.Queue("receipts")) as browser:
            told = [message.body.decode() for message in browser].count(self.name)
        assert (west, east, told) in ((True, True, 1), (False, False, 0)), (west, east, told)
        return COMMITTED if west else ROLLED_BACK


def _chosen():
    """All cells, as often as was asked for, or a sample of them."""
    if TIMES:
        return [(*cell, number) for cell in CELLS for number in range(TIMES)]
    today = random.Random(dt.datetime.now(tz=dt.UTC).date().isoformat())
    return [(*cell, 0) for cell in today.sample(CELLS, SAMPLE)]


@pytest.mark.parametrize(("point", "who", "number"), _chosen())
def test_a_kill_at_any_step_leaves_all_or_nothing(running, point, who, number):
    """Whoever dies when: both databases and the queue agree, and nothing stays in doubt."""
    both, started = running

    assert Cell(both, started, point, who, number).run() == expected(point, who)


def test_the_reference_has_the_table_of_all_cells():
    """What stands there must be what is tested."""
    assert len(CELLS) >= 40
    assert table() in PAGE.read_text()


def table():
    """The matrix as the reference shows it."""
    head = f"| killed | {' | '.join(KILLED)} |\n|---|{'---|' * len(KILLED)}\n"
    rows = [f"| {p} | {' | '.join(expected(p, who) for who in KILLED)} |\n" for p in POINTS]
    return head + "".join(rows)


if __name__ == "__main__" and "--update" in sys.argv:
    pattern = re.compile(r"\| killed \|.*?\n\n", re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: table() + "\n", PAGE.read_text()))
