"""What a secured node does as its configuration says: hashes renewed at logins, anchors of the
audit sent elsewhere, a debugger let in."""

import json
import stat
import sys
from pathlib import Path

import msgspec
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.boot.security_file import change_security, load_security, save_security
from hms.server.logins import document_changes as changes
from hms.server.logins.passwords import is_weaker, verify
from tests.acceptance.security.test_attacks import FileNode
from tests.support.secured import PASSWORD, cheap_hash, document, secured_node
from tests.support.waiting import wait_until

REPLACE = msgspec.structs.replace
LOOKS_S = 2
"""By then the node has looked for what is an alert."""


def run(node, *words, code=0):
    done = CliRunner().invoke(main, [*words, "--config", str(node.config_file)], prog_name="hms")
    assert done.exit_code == code, done.output
    return done.output


def dearer():
    """A document whose passwords cost less than it wants."""
    held = document(u=[], v=[])
    return REPLACE(held, security=REPLACE(held.security, password_passes=2))


def login(node, user):
    return hms.connect(node.address, user=user, password=PASSWORD)


def test_a_hash_that_costs_too_little_is_renewed_by_a_login(tmp_path):
    """The running node writes its file; what is open stays open, and the audit has it."""
    with secured_node(tmp_path, dearer()) as node:
        version = load_security(node.security).version
        with login(node, "u") as connection:
            wait_until(lambda: load_security(node.security).version > version)
            held = load_security(node.security)
            assert not is_weaker(held.user["u"].password, 2, 8 << 10)
            assert verify(held.user["u"].password, PASSWORD.encode())
            assert held.user["u"].generation == dearer().user["u"].generation
            assert held.user["v"].password == cheap_hash()
            wait_until(lambda: f"policy version {held.version} holds" in node.log)
            assert connection.is_connected
        rows = [json.loads(line) for line in run(node, "audit", "export").splitlines()]
        policy = [row for row in rows if row["command"] == "policy"]
        assert [row["user"] for row in policy] == ["system"]
        assert json.loads(policy[0]["arguments"])["changed"] == ["user.u"]
        login(node, "u").close()
        run(node, "security", "reload")
        assert load_security(node.security).version == held.version


def test_a_file_that_may_not_be_written_stays_and_the_login_goes_on(tmp_path):
    """Whoever takes the right away, means the node too, also when it runs as root."""
    with secured_node(tmp_path, dearer()) as node:
        node.security.chmod(0o400)
        before = node.security.read_bytes()
        for user in ("u", "v", "u"):
            with login(node, user) as connection:
                assert connection.is_connected
        run(node, "security", "reload")
        assert node.security.read_bytes() == before
        node.security.chmod(0o600)
        login(node, "u").close()
        wait_until(lambda: node.security.read_bytes() != before)


def test_a_hash_that_was_changed_meanwhile_is_left_alone(tmp_path):
    """What an operator has set is newer than what a login knew."""
    other = cheap_hash("another pass phrase")
    with secured_node(tmp_path, dearer()) as node:
        for user in ("u", "v"):
            login(node, user).close()
            change_security(
                node.security,
                lambda d, user=user: REPLACE(
                    d, user={**d.user, user: REPLACE(d.user[user], password=other)}
                ),
            )
        version = load_security(node.security).version
        wait_until(lambda: f"policy version {version} holds" in node.log)
        run(node, "security", "reload")
        hms.connect(node.address, user="u", password="another pass phrase").close()
        wait_until(lambda: load_security(node.security).version > version)
        held = load_security(node.security)
        assert held.user["v"].password == other
        assert verify(held.user["u"].password, b"another pass phrase")


def test_a_hash_is_renewed_behind_a_command_that_changes_the_file(tmp_path, monkeypatch):
    """It was given up for ten minutes."""
    monkeypatch.setattr("hms.boot.securing.RENEW_EVERY_S", 0.0)
    path, fresh = tmp_path / "security.toml", cheap_hash("renewed")
    save_security(path, dearer())
    node = FileNode(path)
    node.securing.renew("u", cheap_hash(), fresh)
    change_security(path, lambda d: changes.create_role(d, "r"), saved=node.securing.look)
    assert load_security(path).user["u"].password == cheap_hash()
    node.securing.look()
    assert load_security(path).user["u"].password == fresh
    node.securing.close()


def test_the_anchor_of_the_audit_is_sent_by_a_command(tmp_path):
    """It proves later that the store is not an older one; where it is not kept an alert says so."""
    script, kept = tmp_path / "keep", tmp_path / "kept"
    script.write_text(f"#!/bin/sh\n[ -e {tmp_path}/broken ] && exit 3\necho $1 $2 >> {kept}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    with secured_node(tmp_path, document(u=[]), own={"audit_anchor": [str(script)]}) as node:
        name, anchor = wait_until(lambda: kept.exists() and kept.read_text()).split()
        assert name == "NODE1"
        assert run(node, "audit", "anchor").strip() == anchor
        run(node, "queue", "create", "more")
        assert "2 records are whole" in run(node, "audit", "verify", "--anchor", anchor)
        assert "anchor_not_sent" not in run(node, "alert", "list")
        node.stop()
        (tmp_path / "broken").touch()
        node.boot()
        said = wait_until(
            lambda: "anchor_not_sent" in (told := run(node, "alert", "list")) and told
        )
        assert "ended with 3" in said


def alerts(connection):
    return [one["alert"] for one in connection.administer("alert.list")["active"]]


def test_a_debugger_is_let_in_with_an_alert(tmp_path):
    """allow_debugger: for a fault that is to be found; else no core file, and nobody looks in."""
    for is_allowed in (False, True):
        own = {"allow_debugger": is_allowed}
        with secured_node(tmp_path, document(u=[]), own=own, command_prefix=CORE_ALLOWED) as node:
            limits = Path(f"/proc/{node.pid}/limits").read_text(encoding="utf-8").splitlines()
            (line,) = [one for one in limits if one.startswith("Max core file size")]
            assert (line.split()[4] != "0") is is_allowed
            with hms.connect(node.address) as own:
                if is_allowed:
                    wait_until(lambda c=own: "debugger_allowed" in alerts(c))
                wait_until(lambda c=own: c.administer("status")["uptime_s"] > LOOKS_S)
                assert ("debugger_allowed" in alerts(own)) is is_allowed
            node.stop()


CORE_ALLOWED = [sys.executable, "-c", (
    "import os, resource, sys\n"
    "most = resource.getrlimit(resource.RLIMIT_CORE)[1]\n"
    "resource.setrlimit(resource.RLIMIT_CORE, (1024 if most < 0 else most, most))\n"
    "os.execv(sys.argv[1], sys.argv[1:])"
)]  # fmt: skip
