"""Connections that a real node refuses before a login, or cuts, stand in its audit."""

import contextlib
import json
import os

import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.boot.config import load
from hms.boot.log_folder import log_folder
from hms.server.links.keys import make_key_file
from hms.store.journal.reader import list_segments
from hms.testing.ports import free_port
from tests.support import zmtp
from tests.support.secured import document, secured_node
from tests.support.waiting import wait_until

REFUSED, PROTOCOL = 1031, 1001
PART = bytes(64 << 10)


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """With a listener for known keys, and one for a network that nobody is in."""
    folder = tmp_path_factory.mktemp("r")
    at = {name: f"tcp://127.0.0.1:{free_port()}" for name in ("known", "far")}
    key = make_key_file(folder / "server.key")
    about = {"server_key_file": str(folder / "server.key")}
    far = {**about, "client_keys": "ANY", "addresses": ["10.99.0.0/16"]}
    listeners = {
        "known": {"address": at["known"], **about},
        "far": {"address": at["far"], **far},
    }
    config = {"hms": {"queue": {"orders": {}}}, "listener": listeners}
    with secured_node(folder, document(), config) as made:
        made.folder, made.at, made.key = folder, at, key
        yield made


def found(node, resource, error):
    """Records of that listener, once there is one."""

    def read():
        told = audit(node, "list", "--limit", "1000")
        return [one for one in told if (one["resource"], one["result"]) == (resource, error)]

    wait_until(read)
    return read()


def audit(node, *words):
    """What a command of the audit says, as JSON."""
    given = ["audit", *words, "--json", "--config", str(node.config_file)]
    return json.loads(CliRunner().invoke(main, given, catch_exceptions=False).output)


def refuse(node, name, key_file):
    with pytest.raises(hms.LoginRefused):
        hms.connect(
            node.at[name],
            server_keys=[node.key],
            key_file=str(node.folder / key_file),
            connect_timeout_s=60,
        )


def test_an_unknown_key_is_a_record_with_the_key_and_shown_in_a_list(node):
    """Of equal ones of a minute the first alone."""
    public = make_key_file(node.folder / "unknown.key")
    for _ in range(3):
        refuse(node, "known", "unknown.key")

    entry, *_ = found(node, "listener:known", REFUSED)
    assert (entry["from"], entry["command"]) == ("127.0.0.1", "refused")
    assert entry["why"] == f"its key is not known (key {public})"
    assert entry["count"] == 1


def test_another_network_is_a_record(node):
    """Whatever its key."""
    make_key_file(node.folder / "any.key")
    refuse(node, "far", "any.key")

    entry, *_ = found(node, "listener:far", REFUSED)
    assert entry["why"].startswith("the listener is not for its network")


def test_a_frame_without_end_is_a_record_of_the_process_that_sent_it(node):
    """Before any HELLO, at a local socket, where the kernel knows whose process it is."""
    raw = zmtp.connect(node.address)
    with raw, contextlib.suppress(OSError):
        while True:
            raw.sendall(zmtp.part(PART, is_last=False))

    entry, *_ = found(node, f"listener:{node.address}", PROTOCOL)
    assert entry["from"].startswith("uid ")
    assert "without completing a frame" in entry["why"]


def test_an_anchor_is_told_when_what_it_names_is_on_the_disk(node, monkeypatch):
    """A login is synced with what comes next: a power cut would take it, and the anchor that names
    it would accuse the store."""
    synced, sync = set(), os.fsync

    def note(descriptor):
        sync(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    with hms.connect(node.address, connect_timeout_s=60):
        pass
    monkeypatch.setattr(os, "fsync", note)
    number = int(audit(node, "anchor")["anchor"].partition(":")[0])

    newest = list_segments(log_folder(load(node.config_file).node("NODE1")))[-1]
    assert number > 0
    assert newest.file.stat().st_ino in synced


def test_a_boot_of_a_node_that_was_secured_and_is_open_is_audited(tmp_path):
    """Whoever opens a node for an hour, and secures it again, is told by its audit."""
    with secured_node(tmp_path, document()) as made:
        made.stop()
        secured = made.config_file.read_text()
        lines = secured.splitlines(keepends=True)
        made.config_file.write_text("".join(x for x in lines if not x.startswith("security")))
        for text in (made.config_file.read_text(), secured):
            made.config_file.write_text(text)
            made.boot()
            made.stop()
        exported = CliRunner().invoke(
            main, ["audit", "export", "--config", str(made.config_file)], catch_exceptions=False
        )
        entries = [json.loads(line) for line in exported.output.splitlines()]

    boots = [json.loads(one["arguments"]) for one in entries if one["command"] == "boot"]
    assert [one.get("security", "") for one in boots] == ["", "open", ""]
