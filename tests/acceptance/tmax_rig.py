"""A node with servers for the tests of the tp functions, and a thread that is connected to it."""

from pathlib import Path

import pytest
from services_rig import until

import hms
import tpmon
from hms.testing import node

__all__ = ["connected", "running"]

CONFIG = """
[server.tmax]
module = "tmax_services"
MIN = 2
MAX = 2
restart_delay_s = 0
MAXRSTART = -1
[service.MEET]
concurrency = 1
[hms.topic.alerts]
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with node(config=CONFIG, python_path=[Path(__file__).parent]) as started:
        yield started


@pytest.fixture
def connected(running, monkeypatch):
    """tpstart() to a node whose servers are all there."""
    monkeypatch.setenv("HMS_ADDRESS", running.address)
    tpmon.tpstart(tpmon.TPSTART_T(usrname="ann", cltname="till"))
    until(lambda: tpmon.tpcall("WHO"), hms.ServiceNotFound)
    yield running
    tpmon.tpend()
