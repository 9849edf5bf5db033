"""The guard of accept(), in a process of its own: the limit of descriptors is its."""

import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest

from hms.server import accept_guard
from tests.support.waiting import wait_until

needs_guard = pytest.mark.skipif(not accept_guard.is_built, reason="built without a C compiler")
LIMIT = 200
LISTENING = """
import os, resource, sys
import zmq
from hms.server import accept_guard

assert accept_guard.install()
listening = zmq.Context().socket(zmq.ROUTER)
listening.bind(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]),) * 2)
print(listening.getsockopt_string(zmq.LAST_ENDPOINT), flush=True)
for _ in sys.stdin:
    print(accept_guard.put_off(), flush=True)
opened = []
try:
    while True:
        opened.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    print(len(opened), flush=True)
os._exit(0)
"""


@needs_guard
@pytest.mark.parametrize("address", ["ipc://{}/s", "tcp://127.0.0.1:*"])
def test_a_crowd_leaves_the_descriptors_that_are_reserved(tmp_path, address):
    """The process ended over ipc, and over TCP had none left for files of its own. Nobody cuts a
    connection here: the guard alone holds."""
    command = [sys.executable, "-c", LISTENING, address.format(tmp_path), str(LIMIT)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with ExitStack() as stack:
        process = stack.enter_context(subprocess.Popen(command, text=True, **pipes))
        stack.callback(process.kill)
        place = process.stdout.readline().strip().partition("://")[2]

        def put_off():
            process.stdin.write("?\n")
            process.stdin.flush()
            return int(process.stdout.readline() or -1)

        def is_full():
            one = stack.enter_context(
                socket.socket(socket.AF_UNIX if "ipc" in address else socket.AF_INET)
            )
            one.settimeout(0)  # where the kernel's queue is full, this one has not come
            host, _, port = place.rpartition(":")
            one.connect_ex(place if "ipc" in address else (host, int(port)))
            return put_off() > 0

        wait_until(is_full, pause_s=0.001)
        process.stdin.close()
        left, _ = process.stdout.read(), process.wait(60)

        assert process.returncode == 0, process.stderr.read()
        assert int(left) == 32


@needs_guard
def test_libzmq_is_found_wherever_it_was_loaded_from():
    """accept4() of Linux, and accept(), which it is built with, too."""
    assert accept_guard.install()
    assert accept_guard.install()  # once more is no fault
