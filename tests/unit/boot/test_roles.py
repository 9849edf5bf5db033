"""A standby says what it waits for, and nobody takes another process's word for its own."""

import os
import socket
from types import SimpleNamespace

import pytest

from hms.boot.roles import forget_role, role_of, tell_role
from hms.boot.standby import take_store
from hms.errors import StoreLocked


@pytest.fixture
def node(tmp_path):
    return SimpleNamespace(name="N1", runtime=tmp_path / "run")


def test_a_role_is_that_of_its_process(node):
    """A file that a dead standby left says nothing of the node that runs now."""
    assert role_of(node, os.getpid()) is None
    tell_role(node, "process 7", "/mnt/store")

    said = role_of(node, os.getpid())
    assert (said["role"], said["waits_for"], said["store"]) == (
        "standby",
        "process 7",
        "/mnt/store",
    )
    assert role_of(node, os.getpid() + 1) is None
    forget_role(node)
    assert role_of(node, os.getpid()) is None


def test_a_supervisor_hears_a_standby(tmp_path, monkeypatch):
    """Else it would end what it takes for a node that does not come up."""
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(address)
        supervisor.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        opened = iter([StoreLocked(path="p", pid="7"), None])

        def open_store(_config, _node, _heard):
            fault = next(opened)
            if fault is not None:
                raise fault
            return "the store"

        monkeypatch.setattr("hms.boot.standby.open_store", open_store)
        node = SimpleNamespace(
            name="N1",
            runtime=tmp_path / "run",
            shared=False,
            database="postgresql://h/d",
            replica=None,
        )
        monkeypatch.setattr("hms.boot.standby.Taken", lambda *given, **more: (given, more))
        (given, more) = take_store(None, node, None, waits=True)

        assert (given, more) == ((node, "the store"), {"has_waited": True})
        assert supervisor.recv(1024).startswith(b"READY=1\nSTATUS=stands by, waits for process 7")
        assert supervisor.recv(1024) == b"WATCHDOG=1"
    assert role_of(node, os.getpid()) is None
