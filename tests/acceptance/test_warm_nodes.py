"""A node that is forked for a test lives and ends as one that is started by itself."""

import re
import subprocess
from pathlib import Path

import pytest

import hms
from hms.testing import node
from hms.testing import nodes as booting
from tests.support.secured import document, secured_node
from tests.support.warm_nodes import Forked, run_command, warm_nodes

CONFIG = {"hms": {"queue": {"orders": {}}}}


@pytest.fixture(autouse=True)
def _warm(monkeypatch):
    """Also where HMS_COLD_BOOTS is set."""
    monkeypatch.delenv("HMS_COLD_BOOTS", raising=False)
    with warm_nodes():
        yield


def test_it_drains_dies_and_comes_again_as_another_process(tmp_path):
    """Its exit codes, its process id and its log are told as those of any child."""
    with node(store=tmp_path / "store", config=CONFIG) as started:
        assert isinstance(started._process, Forked)
        first = started.pid
        with hms.connect(started.address) as conn, conn.session() as session:
            session.producer("orders").send(b"kept")
        assert started.stop() == 0
        assert not Path(f"/proc/{first}").exists()
        started.boot(warm=True)
        second = started.pid
        started.kill()
        assert started._process.returncode == -9
        assert not started.is_running
        assert not Path(f"/proc/{second}").exists()
        started.boot(warm=True)
        with pytest.raises(subprocess.TimeoutExpired):
            started.wait(0.01)
        started.pause()
        with pytest.raises(hms.errors.NodeStillStopping) as still:
            started.stop(0.01)
        assert still.value.pid == started.pid
        started.kill()  # also one that stands still
        started.boot(warm=True)
        with hms.connect(started.address) as conn, conn.session() as session:
            assert session.consumer("orders").receive(60).body == b"kept"


def test_why_it_does_not_boot_is_told(tmp_path):
    """As the first line that it says."""
    (tmp_path / "store").write_text("no folder")
    with pytest.raises(hms.BootFailed, match="HMS-5006"), node(tmp_path / "store", CONFIG):
        pass


def test_what_counts_when_a_process_starts_has_one_started(tmp_path, monkeypatch):
    """Another program, or a variable of the allocator; and a test that wants it has it."""
    with node(config=CONFIG, command_prefix=["env"]) as started:
        assert isinstance(started._process, subprocess.Popen)
    for name in ("MALLOC_ARENA_MAX", "HMS_COLD_BOOTS"):
        with monkeypatch.context() as patch, node(config=CONFIG) as started:
            assert isinstance(started._process, Forked)
            started.kill()
            patch.setenv(name, "1")
            started.boot()
            assert isinstance(started._process, subprocess.Popen)


def test_a_secured_one_keeps_its_memory_private(tmp_path):
    """As one that is started by itself."""
    with secured_node(tmp_path, document(u=[])) as started:
        assert isinstance(started._process, Forked)
        limits = Path(f"/proc/{started.pid}/limits").read_text()
        assert re.search(r"Max core file size +0 +0 ", limits)


@pytest.mark.parametrize("words", [["queue", "list"], ["queue", "show", "none"], ["queue", "nix"]])
def test_a_command_says_and_ends_as_one_that_is_started_by_itself(words, monkeypatch):
    """What it prints, where, and its exit code."""
    with node(config=CONFIG) as started:
        line = words if "nix" in words else [*words, "--connect", started.address]
        forked = run_command(*line, timeout_s=250)
        monkeypatch.setenv("HMS_COLD_BOOTS", "1")
        own = run_command(*line, timeout_s=250)
    assert (forked.returncode, forked.stdout, forked.stderr) == (
        own.returncode,
        own.stdout,
        own.stderr,
    )


def test_who_forks_is_replaced_when_it_is_of_no_use(monkeypatch):
    """A test that is interrupted between a question and its answer spoils no boot behind it."""
    with node(config=CONFIG) as started:
        started._process._warm.is_usable = False
        with node(config=CONFIG) as other:
            assert other._process._warm is not started._process._warm
        started.kill()
        assert started._process.returncode == -9
    assert booting.subprocess is not subprocess
