"""What every test shares: how Hypothesis searches, where the project lies, and the figures that are
shown at the end.

What a test has recorded as its figures is shown in one table, also with -n.
"""

import gc
import logging
import os
import signal
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from hms.testing.nodes import TestNode
from tests.support.effort import tries
from tests.support.warm_nodes import warm_nodes

LOG_LINES = 30
_ROOT = Path(__file__).resolve().parent.parent
_UNIT = _ROOT / "tests" / "unit"

# Where it is set, each process that a test starts compiles every module anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell has what it runs in the background ignore SIGINT, and so does all that this starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A machine under load is slow, not wrong: no clock decides, neither per example nor for a strategy.
_COMMON = settings(
    max_examples=tries(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile("default", _COMMON)
settings.register_profile("ci", _COMMON, derandomize=True)
settings.register_profile("long", _COMMON, max_examples=2_000)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "default")
)


def pytest_sessionstart():
    """No garbage is looked for while the tests are collected: nothing of them is any."""
    gc.disable()


def pytest_collection_finish():
    """The tests, 1.4 million objects, stay to the end: a pause of seconds each time somebody looks
    for garbage, in a process that plays clients with heartbeats."""
    gc.enable()
    gc.freeze()


@pytest.hookimpl(trylast=True)  # behind the shuffle, which stays within each part
def pytest_collection_modifyitems(config, items):
    """What takes a minute does not begin last, while other processes have no more to do: those that
    run several hand out files in this order, and the last ones take a second each."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _UNIT in item.path.parents)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """A test that fails shows what its nodes said last: a race may not come again."""
    report = yield
    if report.failed:
        nodes = [one for one in gc.get_objects() if type(one) is TestNode and one.log_file.exists()]
        for node in nodes:
            last = node.log.splitlines()[-LOG_LINES:]
            report.sections.append((f"end of {node.log_file}", "\n".join(last)))
    return report


@pytest.fixture(scope="session")
def project_root() -> Path:
    """The folder that holds pyproject.toml."""
    return _ROOT


@pytest.fixture(scope="session", autouse=True)
def _nodes():
    """Those of hms.testing are forked from one process, where that is the same."""
    with nullcontext() if "HMS_COLD_BOOTS" in os.environ else warm_nodes():
        yield


@pytest.fixture(scope="session")
def spark():
    """One Spark session for the whole run: each takes six seconds to start, and a process has one.

    A test that stopped a session of its own would stop this one.
    """
    from hms.history import session

    made = session("hms-tests")
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def _first_failures():
    """Each test's failures are the first of their kind, with a traceback in the log."""
    for name in ("hms.client", "tpmon.server"):
        for one in logging.getLogger(name).filters:
            if hasattr(one, "forget"):
                one.forget()


def pytest_terminal_summary(terminalreporter):
    """A line for each test that recorded some, whether it passed or not."""
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, ())
        if report.when == "call"
    ]
    rows = sorted(
        " ".join(f"{name}={value}" for name, value in figures.items())
        for report in reports
        for key, figures in report.user_properties
        if key == "figures"
    )
    if rows:
        terminalreporter.section("figures")
        for row in rows:
            terminalreporter.write_line(row)
