"""Global transactions over a fork: what a child process must not share with its parent."""

import subprocess
import sys

FORKS = """
import os, signal, sys
from tpmon.tx.participant_steps import all_at_once
from tpmon.xa import resource_opening
from tpmon.xa.resource_opening import Definition, open_resource

class Session:
    closed = 0
    def close_idle(self):
        Session.closed += 1

parents = resource_opening._opened[Definition("lite", "sqlite", "sqlite::memory:")] = Session()
assert all_at_once([lambda: 1, lambda: 2]) == [1, 2]
child = os.fork()
if not child:
    signal.alarm(200)
    assert all_at_once([lambda: 1, lambda: 2]) == [1, 2]
    own = open_resource(Definition("lite", "sqlite", "sqlite::memory:"))
    assert own is not parents
    resource_opening.close_resources()
    os._exit(Session.closed)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert open_resource(Definition("lite", "sqlite", "sqlite::memory:")) is parents
sys.exit(code != 0)
"""


def test_a_forked_child_has_threads_and_sessions_of_its_own():
    """It waited for ever for threads that only its parent has, and spoke to the database through
    its parent's sessions."""
    done = subprocess.run([sys.executable, "-c", FORKS], check=False, timeout=250)

    assert done.returncode == 0
