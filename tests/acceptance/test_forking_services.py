"""What services fork ends with their process, however that ends."""

import os
import signal

from services_rig import calling, has_ended

from hms.testing import node

SERVICES = """
import os
import subprocess
import sys
from tpmon import service

@service("FORK")
def fork(request):
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    return {"server": os.getpid(), "child": child.pid}
"""
CONFIG = """
[server.forking]
module = "forking"
restart_delay_s = 0
MAXRSTART = -1
"""


def test_nothing_that_a_service_forked_outlives_its_server_or_the_node(tmp_path):
    """An orphan would hold ports, files and locks that the next process needs."""
    (tmp_path / "forking.py").write_text(SERVICES)
    with node(config=CONFIG, python_path=[tmp_path]) as started:
        for end in (_kill_server, lambda _: started.kill(), lambda _: started.stop()):
            if not started.is_running:
                started.boot()
            with calling(started) as call:
                pids = call.when_offered("FORK")
                child = os.pidfd_open(pids["child"])
                end(pids["server"])
            try:
                assert has_ended(child)
            finally:
                os.close(child)


def _kill_server(pid):
    os.kill(pid, signal.SIGKILL)
