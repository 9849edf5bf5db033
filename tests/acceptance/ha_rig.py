"""What the tests of take-overs share: a sender that keeps what was confirmed, and who counts."""

import re
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress

import hms
from tests.support.waiting import wait_until
from tests.support.warm_nodes import run_command

WAIT_S = 60
QUEUES = {"queue": {"orders": {}, "held": {}}}
BRIEFLY = {"connect_timeout_s": 2, "request_timeout_s": 5, "reconnect": False}
NOT_NOW = re.compile("silent for|was silent|lacks a part|could be granted the next epoch")
"""Why a move is refused where the other machine, or the arbiter, stood still just then."""


def connect(*nodes, **options):
    addresses = [one.address for one in nodes]
    given = {"reconnect_interval_s": 0.1, "request_timeout_s": WAIT_S, "connect_timeout_s": WAIT_S}
    return hms.connect(addresses, **given, **options)


def active_of(nodes):
    """The machine that has the store and serves. One that has lost it says no role either, until it
    stands by again."""

    def answers(one):
        if one.is_running:
            with suppress(hms.HmsError), hms.connect(one.address, **BRIEFLY) as connection:
                return connection.administer("status").get("role") == "active"
        return False

    return wait_until(lambda: next(filter(answers, nodes), None), WAIT_S)


def bodies(*nodes):
    """All that waits, received in order."""
    with connect(*nodes) as connection, connection.session(ack=hms.AckMode.DUPS_OK) as session:
        consumer, found = session.consumer("orders"), []
        while (message := consumer.receive(0)) is not None:
            assert not message.redelivered
            found.append(bytes(message.body))
        return found


class Sender(threading.Thread):
    """Sends numbers one after the other, as many as it is let, and keeps those confirmed."""

    def __init__(self, nodes):
        super().__init__(daemon=True)
        self.confirmed, self.faults = [], []
        self._nodes, self._changed = nodes, threading.Condition()
        self._allowed, self.is_over = 0, False
        self.start()

    def run(self):
        try:
            with connect(*self._nodes) as connection, connection.session() as session:
                producer, number = session.producer("orders"), 0
                while self._may_send(number):
                    producer.send(b"%d" % number)
                    with self._changed:
                        self.confirmed.append(b"%d" % number)
                        self._changed.notify_all()
                    number += 1
        except BaseException as fault:
            self.faults.append(fault)
            raise

    def _may_send(self, number):
        with self._changed:
            assert self._changed.wait_for(
                lambda: self.is_over or number < self._allowed, 2 * WAIT_S
            )
            return not self.is_over

    def wait_for(self, more):
        """Until so many further ones are confirmed; as many again are on their way then."""
        with self._changed:
            wanted = len(self.confirmed) + more
            self._allowed = max(self._allowed, wanted + more)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: len(self.confirmed) >= wanted, WAIT_S)

    def end(self):
        with self._changed:
            self.is_over = True
            self._changed.notify_all()
        self.join(WAIT_S)
        assert not self.is_alive()
        assert not self.faults


def hms_command(one, *words):
    """What the command line says, with the configuration of a machine."""
    command = [sys.executable, "-m", "hms.boot", *words, "--config", str(one.config_file)]
    limit_s = 3 * WAIT_S  # longer than a command waits itself
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    return done.returncode, done.stdout + done.stderr


def switch_over(nodes, *, has_begun=lambda: False, **asked):
    """Order a move, and again where the other machine stood still just then, as an operator does;
    what was told, nothing where the machine ended before its answer was read. has_begun: a move
    that was refused afterwards is not ordered again."""

    def order():
        with connect(*nodes) as operator:
            before = operator.administer("status")["replication"]["epoch"]
            try:
                return [operator.administer("replica.switchover", asked)]
            except hms.SwitchoverRefused as fault:
                if has_begun() or not NOT_NOW.search(str(fault)):
                    raise
            except hms.ConnectionLost:
                with connect(*nodes) as later:
                    if later.administer("status")["replication"]["epoch"] > before:
                        return [{}]
        return []

    (told,) = wait_until(order, 2 * WAIT_S, pause_s=0.2)
    return told


def type_switchover(one, *words):
    """The same by hms switchover at a machine: exit code, and what it says."""

    def order():
        code, said = hms_command(one, "switchover", *words)
        return None if NOT_NOW.search(said) else (code, said)

    return wait_until(order, 3 * WAIT_S, pause_s=0.2)


def begin_copies(first):
    """Say hms replica init at the machine whose copy is the first, before any is booted."""
    words = "replica", "init", "--config", str(first.config_file)

    def begun():
        done = run_command(*words, timeout_s=WAIT_S)
        return None if "HMS-5060" in done.stderr else done  # the arbiter stood still just then

    done = wait_until(begun, WAIT_S)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def ended(nodes):
    """Kill those that still run at the end of the block, also paused ones."""
    try:
        yield
    finally:
        for one in nodes:
            if one.is_running:
                one.resume()
                one.kill()
