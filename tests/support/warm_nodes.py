"""Nodes that are forked from a process which has loaded their modules already: a run of all tests
boots some hundreds, and most of that time Python would load the same modules.

What runs is hms.boot.node, in a process of its own, with the arguments, variables, descriptors and
the session that it has otherwise. A node under another program, one that is secured, and one whose
variables a Python reads when it starts are started as ever; with HMS_COLD_BOOTS=1 each of them is.
"""

import contextlib
import gc
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from types import SimpleNamespace

NODE = [sys.executable, "-P", "-m", "hms.boot.node"]
AT_START = ("LD_", "PYTHON", "MALLOC_", "GLIBC_", "HMS_PURE", "TZ", "LANG", "LC_")
"""Variables that count when a process starts, or when it loads its modules."""
READY_FD = 3
READ_BYTES = 1 << 20


class Forked:
    """What TestNode uses of a subprocess.Popen."""

    def __init__(self, warm, pid, end):
        self.pid, self.returncode = pid, None
        self._warm, self._end, self._lock = warm, end, threading.Lock()

    def poll(self):
        return self._look(0)

    def wait(self, timeout=None):
        if self._look(timeout) is None:
            raise subprocess.TimeoutExpired(NODE, timeout)
        return self.returncode

    def kill(self):
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _look(self, timeout_s):
        poll = select.poll()
        if self.returncode is None:
            poll.register(self._end, select.POLLIN)
            if not poll.poll(None if timeout_s is None else timeout_s * 1000):
                return None
        with self._lock:
            if self.returncode is None:
                code = int(os.read(self._end, 32) or -signal.SIGKILL)
                with contextlib.suppress(OSError, ValueError):  # who forked it may have ended
                    self._warm.ask({"reap": self.pid})
                self.returncode = code
        return self.returncode

    def __del__(self):
        os.close(self._end)


class Warm:
    """A process that forks nodes."""

    def __init__(self, env):
        self._lock, self.is_usable = threading.Lock(), True
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(Path(__file__)), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=env,
                start_new_session=True,
            )

    def boot(self, arguments, options):
        """A node; options: of subprocess.Popen."""
        end, told = os.pipe()
        try:
            said = {"arguments": arguments, "env": options["env"], "cwd": str(Path.cwd())}
            pid = self.ask(said, options["stdout"].fileno(), *options["pass_fds"], told)
        finally:
            os.close(told)
        return Forked(self, pid, end)

    def ask(self, what, *descriptors):
        """A number in answer; who was interrupted before it came may have no other answer."""
        with self._lock:
            try:
                socket.send_fds(self._door, [json.dumps(what).encode()], descriptors)
                return int(self._door.recv(READ_BYTES))
            except BaseException:
                self.is_usable = False
                raise

    def close(self):
        """No more nodes; those that run go on."""
        self._door.close()
        self._process.wait()


@contextlib.contextmanager
def warm_nodes():
    """Within the block hms.testing forks its nodes; the first of them starts who forks."""
    from hms.testing import nodes

    plain, env, made, lock = nodes.subprocess, nodes._environment(), [], threading.Lock()

    def popen(command, **options):
        if command[: len(NODE)] != NODE or _must_be_cold(command, options["env"], env):
            return subprocess.Popen(command, **options)
        with lock:
            if not made or not made[-1].is_usable:
                made.append(Warm(env))
        return made[-1].boot(command[len(NODE) :], options)

    nodes.subprocess = SimpleNamespace(Popen=popen, DEVNULL=plain.DEVNULL)
    try:
        yield
    finally:
        nodes.subprocess = plain
        for one in made:
            one.close()


def _must_be_cold(command, env, begun_with):
    config = Path(command[command.index("--config") + 1])
    return _at_start(env) != _at_start(begun_with) or "security" in config.read_text()


def _at_start(env):
    return {name: value for name, value in env.items() if name.startswith(AT_START)}


def main(door):
    """Fork a node for each word, and tell of each that ends."""
    from hms.boot import node

    gc.collect()
    gc.freeze()
    ends, poll = {}, select.poll()
    poll.register(door, select.POLLIN)
    while True:
        for number, _ in poll.poll():
            if number != door.fileno():
                poll.unregister(number)
                _tell(number, *ends.pop(number))
                continue
            said, descriptors, _, _ = socket.recv_fds(door, READ_BYTES, 3)
            if not said:
                return
            asked = json.loads(said)
            pid = asked.get("reap") or os.fork()
            if "reap" in asked:
                os.waitpid(pid, 0)
            elif pid == 0:
                _become(node, asked, descriptors)
            else:
                *its_own, told = descriptors
                for one in its_own:
                    os.close(one)
                ended = os.pidfd_open(pid)
                ends[ended] = pid, told
                poll.register(ended, select.POLLIN)
            door.send(b"%d" % pid)


def _tell(ended, pid, told):
    """How it ended; it stays until it is asked for, as a child does."""
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    code = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
    with contextlib.suppress(BrokenPipeError):
        os.write(told, b"%d" % code)
    os.close(told)
    os.close(ended)


def _become(node, asked, descriptors):
    """Be that node, as python -m hms.boot.node is."""
    code = 1
    try:
        log, ready, _ = descriptors
        os.setsid()
        os.chdir(asked["cwd"])
        os.environ.clear()
        os.environ.update(asked["env"])
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, own in enumerate((nothing, log, log)):
            os.dup2(own, number)
        if ready != READY_FD:
            os.dup2(ready, READY_FD)
        os.closerange(READY_FD + 1, 1 << 20)
        arguments = asked["arguments"]
        arguments[arguments.index("--ready-fd") + 1] = str(READY_FD)
        random.seed()
        code = node.main(arguments)
        sys.stderr.flush()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - as the interpreter does at the end of a program
        traceback.print_exc()
    os._exit(code)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)
