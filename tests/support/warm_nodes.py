"""Nodes that are forked from a process which has loaded their modules already: a run of all tests
boots some hundreds, and most of that time Python would load the same modules. So are commands, for
tests that say some and are about what these do.

What runs is hms.boot.node, in a process of its own, with the arguments, variables, descriptors and
the session that it has otherwise. A node under another program and one whose variables a Python
reads when it starts are started as ever; with HMS_COLD_BOOTS=1 each of them is, also when a test
sets it: what is in a process from its start, as its environment, is that of who forked it.
"""

import contextlib
import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from types import SimpleNamespace

NODE = [sys.executable, "-P", "-m", "hms.boot.node"]
COMMAND = [sys.executable, "-m", "hms.boot"]
AT_START = ("LD_", "PYTHON", "MALLOC_", "GLIBC_", "HMS_PURE", "TZ", "LANG", "LC_")
"""Variables that count when a process starts, or when it loads its modules."""
LATER = ("hms.boot.replicating", "hms.boot.cli.replicas", "etcd3gw", "argon2")
"""What a node or a command loads when it needs it; the last two are extras."""
COLD = "HMS_COLD_BOOTS"
READY_FD = 3
READ_BYTES = 1 << 20
_forkers = []


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
        return self._fork(
            {"node": arguments}, options["env"], options["stdout"].fileno(), *options["pass_fds"]
        )

    def say(self, words, out, err):
        """A command that writes into these files."""
        return self._fork({"command": words}, dict(os.environ), out.fileno(), err.fileno())

    def _fork(self, what, env, *descriptors):
        end, told = os.pipe()
        try:
            pid = self.ask({**what, "env": env, "cwd": str(Path.cwd())}, *descriptors, told)
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

    def forker(wanted):
        if _must_be_cold(wanted, env):
            return None
        with lock:
            if not made or not made[-1].is_usable:
                made.append(Warm(env))
            return made[-1]

    def popen(command, **options):
        warm = forker(options["env"]) if command[: len(NODE)] == NODE else None
        if warm is None:
            return subprocess.Popen(command, **options)
        return warm.boot(command[len(NODE) :], options)

    nodes.subprocess = SimpleNamespace(Popen=popen, DEVNULL=plain.DEVNULL)
    _forkers.append(forker)
    try:
        yield
    finally:
        _forkers.remove(forker)
        nodes.subprocess = plain
        for one in made:
            one.close()


def run_command(*words, timeout_s):
    """What `hms` says to these words, as subprocess.run tells it; TimeoutExpired."""
    warm = _forkers[-1](nodes_environment()) if _forkers else None
    if warm is None:
        line = [*COMMAND, *words]
        return subprocess.run(line, capture_output=True, text=True, timeout=timeout_s, check=False)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        ended = warm.say(words, out, err)
        try:
            code = ended.wait(timeout_s)
        finally:
            ended.kill()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess([*COMMAND, *words], code, out.read(), err.read())


def nodes_environment():
    """As a node of this process has it."""
    from hms.testing import nodes

    return nodes._environment()


def _must_be_cold(env, begun_with):
    return COLD in env or _at_start(env) != _at_start(begun_with)


def _at_start(env):
    return {name: value for name, value in env.items() if name.startswith(AT_START)}


def main(door):
    """Fork a node or a command for each word, and tell of each that ends."""
    from hms.boot import cli, node

    for name in LATER:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
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
                _become(node.main, cli.main, asked, descriptors)
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


def _become(node, command, asked, descriptors):
    """Be that node, as python -m hms.boot.node is, or that command."""
    code = 1
    try:
        out, other, _ = descriptors
        os.setsid()
        os.chdir(asked["cwd"])
        os.environ.clear()
        os.environ.update(asked["env"])
        nothing = os.open(os.devnull, os.O_RDONLY)
        random.seed()
        if "node" in asked:
            _take(nothing, out, out, other)
            arguments = asked["node"]
            arguments[arguments.index("--ready-fd") + 1] = str(READY_FD)
            code = node(arguments)
        else:
            _take(nothing, out, other)
            command(asked["command"], "python -m hms.boot")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - as the interpreter does at the end of a program
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _take(*descriptors):
    """These are 0, 1, 2 and so on, and nothing else is open."""
    for number, own in enumerate(descriptors):
        if own != number:
            os.dup2(own, number)
    os.closerange(len(descriptors), 1 << 20)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)
