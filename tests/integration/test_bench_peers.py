"""The process that answers calls beside a peer, with a driver of the test's own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.peers.server import Peer
from hms.boot.bench.systems import Needs, Running

_DRIVER = """
import pathlib, threading


class Driver:
    def __init__(self, address, options):
        self.place = pathlib.Path(address)
        self.word = options["word"]

    def answer(self, ready):
        self.place.write_text(self.word)
        ready()
        threading.Event().wait()


class Broken:
    def __init__(self, address, options):
        raise ConnectionError("nobody listens")
"""


@dataclass(frozen=True, kw_only=True)
class _Peer(Peer):
    @contextmanager
    def boot(self, folder: Path, needs: Needs) -> Iterator[Running]:  # noqa: ARG002
        yield Running(str(folder / "said"), (os.getpid(),), {"word": "hello"})


@pytest.fixture
def peer(tmp_path, monkeypatch):
    """Makes a peer with a driver of this name."""
    (tmp_path / "played.py").write_text(_DRIVER)
    root = Path(__file__).resolve().parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{root}")

    def make(name):
        return _Peer(
            name="played",
            driver=f"played:{name}",
            durability="none",
            is_synced=False,
            programs=(),
            modules=(),
            workloads=frozenset({"W8"}),
        )

    return make


def test_who_answers_counts_as_part_of_the_system_and_ends_with_it(peer, tmp_path):
    """Its share of the work would be missing from the table, or go on beside the next one."""
    with peer("Driver").run(tmp_path, Needs(has_service=True)) as running:
        ours, service = running.pids
        assert (tmp_path / "said").read_text() == "hello"
        os.kill(service, 0)

    assert ours == os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(service, 0)


def test_without_a_call_nobody_answers(peer, tmp_path):
    """A process more would take from the processors that are measured."""
    with peer("Driver").run(tmp_path, Needs()) as running:
        assert running.pids == (os.getpid(),)


def test_a_service_that_cannot_begin_is_told(peer, tmp_path):
    """To wait for it would be to wait for ever."""
    begun = peer("Broken").run(tmp_path, Needs(has_service=True))
    with pytest.raises(ConnectionError, match="the service ended with 1"), begun:
        pytest.fail("it did not begin")
