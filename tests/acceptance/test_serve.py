"""Servers started by hand: they come back to a node that was booted again, and end when told to."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from services_rig import WAIT_S, calling, until, write_project

from hms.errors.catalogue import ServiceNotFound
from hms.testing import node

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def serve(tmp_path):
    """Start a server process for a node; it is ended with the test."""
    project, started = write_project(tmp_path / "project"), []

    def start(address, module):
        command = [sys.executable, "-P", "-m", "tpmon.server", "--connect", address]
        started.append(
            subprocess.Popen(
                [*command, "--path", str(project), module],
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_a_server_offers_its_services_again_to_a_node_that_was_booted_again(serve):
    """The node may be restarted under it; nobody should have to notice."""
    with node() as running, calling(running) as call:
        server = serve(running.address, "shop")
        assert call.when_offered("WHO")["pid"] == server.pid

        running.kill()
        running.boot()

        assert call.when_offered("WHO")["pid"] == server.pid


def test_sigterm_takes_the_services_back_before_the_process_ends(serve):
    """The next caller is told that nobody offers it, and no call is sent to a process that goes."""
    with node() as running, calling(running) as call:
        server = serve(running.address, "shop")
        call.when_offered("WHO")

        server.send_signal(signal.SIGTERM)

        assert server.wait(WAIT_S) == 0
        with pytest.raises(ServiceNotFound):
            call("WHO")


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("no_such_module", "no_such_module cannot be loaded: there is no module no_such_module in"),
        ("services", "services cannot be loaded: it has no function with @service"),
    ],
)
def test_a_module_without_services_ends_the_process_with_the_reason(serve, module, said):
    """Whoever typed a wrong name reads it at once."""
    with node() as running:
        server = serve(running.address, module)
        _, log = server.communicate(timeout=WAIT_S)

        assert server.returncode == 1
        assert said in log
        assert "hms serve no_such_module" not in log  # what was typed is no advice


def test_two_functions_of_one_name_end_the_process(serve, tmp_path):
    """Which of the two runs must not depend on the order of imports."""
    module = "from tpmon import service\n" + "".join(
        f"@service('SAME')\ndef {name}(request): ...\n" for name in ("first", "second")
    )
    with node() as running:
        (tmp_path / "project").joinpath("twice.py").write_text(module)
        server = serve(running.address, "twice")
        _, log = server.communicate(timeout=WAIT_S)

        assert server.returncode == 1
        assert "the service SAME is already offered by another function" in log


def test_a_server_that_is_killed_while_idle_is_missed(serve):
    """Its service must not look offered for ever."""
    with node() as running, calling(running) as call:
        server = serve(running.address, "shop")
        call.when_offered("WHO")

        server.kill()

        until(lambda: not call.connection.administer("service.list"))
