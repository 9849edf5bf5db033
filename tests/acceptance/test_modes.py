"""Rights of what a node makes: they do not depend on the umask of whoever boots it."""

import grp
import os
import stat
import subprocess
import sys
from contextlib import contextmanager

import pytest

import hms
from hms.testing import node

ANY_UMASK = ["sh", "-c", 'umask 0; exec "$@"', "sh"]


@contextmanager
def booted(folder, **options):
    config = {
        "node": {"node1": {"listen": [f"ipc://{folder}/hms.sock"]} | options},
        "hms": {"queue": {"orders": {}}},
    }
    with node(store=folder / "store", config=config, command_prefix=ANY_UMASK) as running:
        yield running


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_what_a_node_makes_is_the_owner_s_whatever_the_umask_is(tmp_path):
    """With umask 0 the socket was open to everybody on the machine."""
    source = tmp_path / "source"
    source.write_bytes(b"content")
    with booted(tmp_path) as running:
        with hms.connect(running.address) as conn, conn.session() as session:
            session.producer("orders").send(hms.Message.file(source))
        assert mode(tmp_path / "hms.sock") == 0o600
    found = [tmp_path / "store", *(tmp_path / "store").rglob("*")]  # while nobody renames any
    assert len(found) > 4
    for path in found:
        assert mode(path) & 0o027 == 0, path
    for path in (tmp_path / "store" / "files").rglob("*"):
        assert mode(path) & 0o077 == 0, path


def test_the_group_may_be_let_in(tmp_path):
    """An application and its node are often two users of one group."""
    with booted(tmp_path, ipc_mode="0660") as running:
        assert mode(tmp_path / "hms.sock") == 0o660
        with hms.connect(running.address) as conn, conn.session() as session:
            assert session.producer("orders").send(b"x")


def test_the_file_gets_the_group_that_is_named(tmp_path):
    """ipc_group; one that the machine does not have is refused before anything is changed."""
    group = next(one for one in grp.getgrall() if one.gr_gid not in (os.getegid(), 0))
    if os.geteuid():
        group = grp.getgrgid(os.getgroups()[-1])
    with booted(tmp_path, ipc_mode="0660", ipc_group=group.gr_name) as running:
        found = (tmp_path / "hms.sock").stat()
        assert (found.st_gid, stat.S_IMODE(found.st_mode)) == (group.gr_gid, 0o660)
        with hms.connect(running.address) as conn:
            assert conn.is_connected
    before = sorted((tmp_path / "store").glob("*.log"))
    asked = {"ipc_mode": "0660", "ipc_group": "no-such-group"}
    with pytest.raises(hms.HmsError, match="no group 'no-such-group'"), booted(tmp_path, **asked):
        raise AssertionError("it booted")
    assert sorted((tmp_path / "store").glob("*.log")) == before


@pytest.mark.parametrize("word", ["660", "0999", "4755", 432, ""])
def test_rights_that_are_none_are_refused(tmp_path, word):
    """A slip of the pen must not open the node."""
    with pytest.raises(hms.HmsError, match="ipc_mode"), booted(tmp_path, ipc_mode=word):
        raise AssertionError("it booted")


def test_the_files_of_a_booted_process_have_rights_of_their_own(tmp_path):
    """Whoever can write a pid file can have any process of the operator's ended."""
    config = tmp_path / "hms.conf"
    text = f'[node.NODE1]\nlisten = ["ipc://{tmp_path}/hms.sock"]\n[hms.queue.orders]\n'
    config.write_text(text)
    words = [*ANY_UMASK, sys.executable, "-m", "hms.boot"]
    own = {"env": os.environ | {"HMS_CONFIG": str(config)}, "cwd": tmp_path, "timeout": 140}
    subprocess.run([*words, "boot", "--config", str(config)], check=True, **own)
    try:
        files = list((tmp_path / "var").rglob("*"))
        assert any(path.suffix == ".pid" for path in files)
        for path in files:
            assert mode(path) & 0o027 == 0, path
    finally:
        subprocess.run([*words, "down", "--config", str(config)], check=True, **own)
