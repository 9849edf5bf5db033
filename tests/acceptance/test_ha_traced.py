"""What an old owner sends after a pause past its lease, as the kernel saw it: strace has every
frame that its process gives to a socket (must show 4, and the trace of HA.md §12).

Nothing is confirmed and no persistent message is delivered behind the pause, by a primary of a
replicated log and by the old owner of a shared directory, while a client is connected that has
written sends and an acknowledgement which asks for the next message.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

import hms
from hms.testing import node
from hms.wire.frames import MAGIC, VERSION, Kind
from tests.acceptance.ha_rig import QUEUES, WAIT_S, bodies, connect
from tests.acceptance.pair_rig import BRIEF_S, arbiter, pair
from tests.acceptance.test_ha_shared_store import machines
from tests.support.waiting import wait_until

SENDS = 20
WAITING = [b"waits %d" % number for number in range(5)]
STOPPED = "--- stopped by SIGSTOP ---"
HEAD = re.escape("".join(f"\\x{byte:02x}" for byte in (*MAGIC, VERSION)))
FRAME = re.compile(HEAD + r"\\x([0-9a-f]{2})")
LATE = b"written while its owner stood still"


def traced(file):
    """Runs a node so that each frame it sends is in a file."""
    calls = "trace=sendto,sendmsg,sendmmsg,write,writev"
    command = ["strace", "-f", "--seccomp-bpf", "-qq", "-xx", "-s", "65536", "-o", str(file)]
    return [*command, "-e", calls, "-e", "signal=STOP,CONT"]


def sent(file):
    """Kinds of frames, counted: before all threads stood still, and from then on."""
    lines = file.read_text().splitlines()
    stops = [at for at, line in enumerate(lines) if line.endswith(STOPPED)]
    return kinds(lines[: stops[0]]), kinds(lines[stops[-1] :])


def kinds(lines):
    """Of frames to clients."""
    return Counter(int(kind, 16) for line in lines for kind in FRAME.findall(line))


def stopped(one):
    """Whether each of its threads stands still, so that the trace says so."""
    return all(
        (task / "stat").read_text().rpartition(")")[2].split()[0] in "tT" for task in _tasks(one)
    )


def _tasks(one):
    return list(Path(f"/proc/{one.pid}/task").iterdir())


class Caught:
    """A client of the machine that stands still: what it gives it there."""

    def __init__(self, one):
        self.connection = hms.connect(one.address, request_timeout_s=WAIT_S)
        self.producer = self.connection.session().producer("orders")
        for body in WAITING:
            self.connection.session().producer("held").send(body)
        session = self.connection.session(ack=hms.AckMode.CLIENT)
        self.consumer = session.consumer("held", prefetch=1)
        self.held = self.consumer.receive(WAIT_S)
        self.session = session
        self.producer.send(b"before")

    def write(self):
        """So many sends, and what asks for a message."""
        self.late = [self.producer.send_async(LATE) for _ in range(SENDS)]
        self.session.ack(wait=False)


def silent_since(file):
    """It did confirm and deliver before, so the trace has what it is asked for."""
    before, after = sent(file)
    assert before[Kind.CONFIRM] >= 1 + len(WAITING)
    assert before[Kind.DELIVER] >= 1
    assert (after[Kind.CONFIRM], after[Kind.DELIVER]) == (0, 0), after


def test_the_trace_has_what_an_owner_sends_after_a_pause_that_nobody_notices(tmp_path):
    """So that an empty one proves something: a node alone, which may do all of it."""
    trace = tmp_path / "trace"
    with node(config={"hms": QUEUES}, command_prefix=traced(trace)) as one:
        caught = Caught(one)
        one.pause()
        wait_until(lambda: stopped(one), WAIT_S)
        caught.write()
        one.resume()
        for late in caught.late:
            late.result(WAIT_S)
        assert caught.consumer.receive(WAIT_S).body == WAITING[1]
        caught.connection.close()
    before, after = sent(trace)
    assert before[Kind.CONFIRM] >= 1 + len(WAITING)
    assert after[Kind.CONFIRM] >= 1
    assert after[Kind.DELIVER] >= 1


@pytest.mark.timeout(300)
def test_a_primary_that_goes_on_after_a_pause_sends_no_confirmation_and_no_message(tmp_path):
    """The log with two copies; it follows afterwards, and has been asked for all it did not do."""
    trace = tmp_path / "trace"
    with arbiter(tmp_path, BRIEF_S) as decided_by, pair(tmp_path, decided_by) as two:
        two.a._prefix = traced(trace)
        two.boot()
        assert two.leader is two.a
        caught = Caught(two.a)
        two.a.pause()
        wait_until(lambda: stopped(two.a), WAIT_S)
        caught.write()
        with connect(two.b) as connection:
            assert connection.administer("status")["replication"]["epoch"] == 2
        two.a.resume()

        two.wait_for_both()
        silent_since(trace)
        caught.connection.close()
        assert bodies(two.b)[:1] == [b"before"]


@pytest.mark.timeout(300)
def test_the_old_owner_of_a_directory_sends_nothing_after_a_pause_and_its_bytes_are_in_no_log(
    tmp_path,
):
    """It ends. What it wrote after the pause is in no file of the store."""
    trace = tmp_path / "trace"
    with machines(tmp_path, "a", "b") as (a, b):
        a._prefix = traced(trace)
        a.boot()
        b.boot(standby=True)
        caught = Caught(a)
        a.pause()
        wait_until(lambda: stopped(a), WAIT_S)
        caught.write()
        with connect(b) as connection:
            assert connection.administer("status")["role"] == "active"
        a.resume()
        assert a.wait() == 1

        silent_since(trace)
        files = [file for file in b.store.rglob("*") if file.is_file()]
        assert any(b"before" in file.read_bytes() for file in files)
        assert [file for file in files if LATE in file.read_bytes()] == []
        caught.connection.close()
        assert bodies(b) == [b"before"]
