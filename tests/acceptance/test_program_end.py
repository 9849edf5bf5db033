"""A program that ends without closing its connection."""

import subprocess
import sys

import hms
from hms.testing import node

CONFIG = "[hms.queue.orders]\n"
WAIT_S = 60
MANY = 3_000
PROGRAM = """
import sys
import hms
from hms.client.core import exit_settling


def main():
    session = hms.connect(sys.argv[1]).session()
    producer = session.producer("orders")
    producer.send(b"first")
    exit_settling.EXIT_S = float(sys.argv[2])
    sys.stdin.readline()
    for _ in range(int(sys.argv[3])):
        producer.send_async(b"coffee")


main()
"""


def _started(address, wait_s, count):
    words = [sys.executable, "-c", PROGRAM, address, str(wait_s), str(count)]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdin=pipe, stderr=pipe, stdout=pipe, text=True)


def _waiting(connection):
    with connection.session() as session, session.browser("orders") as browser:
        return sum(1 for _ in browser)


def test_what_was_sent_without_waiting_is_stored_before_the_program_ends():
    """500 sends, no close(), exit code 0: the node had 257 of them."""
    with node(config=CONFIG) as running, hms.connect(running.address) as connection:
        program = _started(running.address, WAIT_S, MANY)
        _, said = program.communicate("go\n", timeout=WAIT_S)

        assert (program.returncode, said) == (0, "")
        assert _waiting(connection) == MANY + 1


def test_a_program_that_ends_says_that_its_sends_were_not_confirmed():
    """It waits for a node that does not answer, but not for long."""
    with node(config=CONFIG) as running:
        program = _started(running.address, 0.2, 1)
        with hms.connect(running.address) as connection, connection.session() as session:
            assert session.consumer("orders").receive(timeout_s=WAIT_S).body == b"first"
        running.pause()
        _, said = program.communicate("go\n", timeout=WAIT_S)

        assert program.returncode == 0
        assert f"the node at {running.address} has not confirmed all that it was sent" in said


def test_large_bodies_are_sent_too_at_the_end_of_a_program(tmp_path):
    """They are sent without a copy, by a part of pyzmq that stops at the end of the program."""
    program = PROGRAM.replace('b"first"', 'b""').replace('b"coffee"', 'b"x" * 500_000')
    with node(tmp_path / "store", CONFIG) as running:
        words = [sys.executable, "-c", program, running.address, "5", "40"]
        how = {"input": "\n", "capture_output": True, "text": True, "timeout": WAIT_S}
        told = subprocess.run(words, check=False, **how)
        assert (told.returncode, told.stderr) == (0, "")
        with hms.connect(running.address) as connection:
            assert _waiting(connection) == 41
