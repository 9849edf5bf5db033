"""hms profile and hms client config: what is exported for a client, and what is shown of it."""

import json
import os

import pytest
from click.testing import CliRunner

from hms.boot.cli import main
from hms.boot.security_file import load_security, save_security
from hms.client.profiles.client_file import read_file
from hms.client.profiles.settings import settings_of
from hms.server.links.keys import make_key_file, read_key_file
from hms.server.logins.security_document import SecurityDocument, UserEntry
from tests.support.secured import cheap_hash, me

KNOWN = '[listener.clients]\naddress = "tcp://10.0.0.1:7700"\nserver_key_file = "node.key"\n'
ANY = KNOWN.replace("10.0.0.1:7700", "0.0.0.0:7701").replace(".clients]", ".any]")
ANY += 'client_keys = "ANY"\n'


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A command in a folder of its own; its text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("HMS_CLIENT_CONFIG", "HMS_PROFILE", "HMS_CONFIG"):
        monkeypatch.delenv(name, raising=False)

    def go(*words, code=0, is_json=False):
        done = CliRunner().invoke(main, [*words, *(["--json"] if is_json else [])])
        assert done.exit_code == code, done.output
        return json.loads(done.stdout) if is_json else done.output

    return go


@pytest.fixture
def node(tmp_path):
    """A configuration of a secured node with these listeners, and its users."""

    def make(*listeners):
        names = [one.split(".", 1)[1].split("]")[0] for one in listeners]
        listen = json.dumps([f"ipc://{tmp_path}/s", *names])
        text = f'[node.NODE1]\nlisten = {listen}\nsecurity = "security.toml"\n'
        (tmp_path / "hms.conf").write_text(text + "".join(listeners))
        make_key_file(tmp_path / "node.key")
        users = {
            "root": UserEntry(os_users=(me(),), roles=("admin", "security")),
            "keyed": UserEntry(),
            "clerk": UserEntry(password=cheap_hash()),
            "both": UserEntry(password=cheap_hash(), two_factors=True, os_users=("nobody",)),
        }
        save_security(tmp_path / "security.toml", SecurityDocument(user=users))

    return make


def held(path, name):
    """What a client has of an exported file."""
    return read_file(path).profiles[name]


def test_an_export_with_a_new_key_is_all_that_a_client_needs(run, node, tmp_path):
    """The key is the user's, and nobody else may read it or the profile."""
    node(KNOWN)
    said = run("profile", "export", "app", "--user", "keyed", "--new-key", is_json=True)
    public = read_key_file(tmp_path / "app.key").public.decode()
    assert load_security(tmp_path / "security.toml").user["keyed"].keys == (public,)
    assert held(tmp_path / "app.toml", "app") == {
        "addresses": ("tcp://10.0.0.1:7700",),
        "server_keys": (read_key_file(tmp_path / "node.key").public.decode(),),
        "key_file": str(tmp_path / "app.key"),
    }
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("app.toml", "app.key")]
    assert modes == [0o600, 0o600]
    assert said["key_path"] == "app.key"


def test_the_next_key_of_a_node_is_exported_too(run, node, tmp_path):
    """A client that is set up between the two steps of a rotation works after it."""
    node(KNOWN)
    run("keys", "rotate", "clients")
    run("profile", "export", "app", "--user", "keyed", "--new-key")
    assert len(held(tmp_path / "app.toml", "app")["server_keys"]) == 2


def test_a_password_is_named_and_never_written(run, node, tmp_path):
    """Of a user that logs in by it; with two factors beside the key."""
    node(ANY)
    told = run("profile", "export", "c", "--user", "clerk")
    assert "file:password" in told
    known = held(tmp_path / "c.toml", "c")
    assert (known["user"], known["password"]) == ("clerk", "file:password")
    assert known["addresses"] == (f"tcp://{os.uname().nodename}:7701",)
    run("profile", "export", "b", "--user", "both", "--new-key", "--password", "env:HMS_B")
    known = held(tmp_path / "b.toml", "b")
    assert known["password"] == "env:HMS_B"
    assert known["key_file"]
    run("profile", "export", "t", "--user", "clerk", "--token", "file:token")
    known = held(tmp_path / "t.toml", "t")
    assert known["token"] == "file:token"
    assert "password" not in known
    said = run("profile", "export", "x", "--user", "clerk", "--password", "hunter2", code=1)
    assert "a secret does not stand here" in said
    assert "hunter2" not in said
    assert not (tmp_path / "x.toml").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["app", "--user", "keyed"], "--new-key"),
        (["app", "--user", "nobody", "--new-key"], "nobody"),
        (["app", "--user", "clerk", "--listener", "clients"], "lets in keys that it knows"),
        (["app", "--user", "keyed", "--new-key", "--listener", "other"], "clients, ipc"),
        (["app", "--user", "keyed", "--new-key", "--listener", "ipc"], "takes no keys"),
        (["app", "--user", "keyed", "--listener", "ipc"], "has no password"),
        (["app", "--user", "keyed", "--new-key", "--address", "a:1"], "tcp://HOST:PORT"),
        (["app", "--user", "keyed", "--new-key", "--server-key", "k"], "40 characters"),
        (["jms/App", "--user", "keyed", "--new-key"], "give --output"),
        (["app", "--user", "keyed", "--new-key", "--connect", "tcp://a:1"], "--config"),
    ],
)
def test_what_would_not_get_in_is_not_exported(run, node, tmp_path, words, said):
    """And nothing is left behind: no file, no key of the user."""
    node(KNOWN)
    before = sorted(tmp_path.iterdir())
    policy = (tmp_path / "security.toml").read_bytes()
    assert said in run("profile", "export", *words, code=1)
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "security.toml").read_bytes() == policy


def test_nothing_is_written_over(run, node, tmp_path):
    """Neither a profile nor a key, and the user gets no key that is nowhere."""
    node(KNOWN)
    (tmp_path / "a.toml").write_text("mine")
    assert "exists" in run("profile", "export", "a", "--user", "keyed", "--new-key", code=1)
    (tmp_path / "b.key").write_text("mine")
    run("profile", "export", "b", "--user", "keyed", "--new-key", code=1)
    assert not (tmp_path / "b.toml").exists()
    assert (tmp_path / "a.toml").read_text() == (tmp_path / "b.key").read_text() == "mine"
    assert load_security(tmp_path / "security.toml").user["keyed"].keys == ()


def test_of_several_listeners_one_is_named(run, node, tmp_path):
    """A wrong guess would be found out on the other machine."""
    node(KNOWN, ANY)
    said = run("profile", "export", "c", "--user", "clerk", code=2)
    assert "clients, any" in said
    run("profile", "export", "c", "--user", "clerk", "--listener", "any")
    run(
        *("profile", "export", "jms/App", "--user", "clerk", "--listener", "any"),
        *("--address", "tcp://a:1", "--address", "tcp://b:1", "--output", "app.toml"),
        *("--server-key", "k" * 40),
    )
    known = held(tmp_path / "app.toml", "jms/App")
    assert known["addresses"] == ("tcp://a:1", "tcp://b:1")
    assert known["server_keys"][1:] == ("k" * 40,)


def test_a_local_profile_has_the_socket(run, node, tmp_path):
    """Of a process of this machine, which the kernel knows."""
    node()
    run("profile", "export", "r", "--user", "root")
    assert held(tmp_path / "r.toml", "r") == {"addresses": (f"ipc://{tmp_path}/s",)}
    assert settings_of(read_file(tmp_path / "r.toml"), "r", {})["addresses"]


def test_an_open_node_has_no_users_to_export(run, node, tmp_path):
    """It is told what comes first."""
    (tmp_path / "hms.conf").write_text("[node.NODE1]\n")
    assert "hms config secure" in run("profile", "export", "a", "--user", "u", code=1)


# ---- at the client


def test_values_are_shown_with_their_origin(run, tmp_path):
    """Also without a file, and of secrets where they are."""
    assert "built in" in run("client", "config", "show")
    run("client", "config", "show", "--profile", "p", code=1)
    path = tmp_path / "hms-client.toml"
    path.write_text(
        "[defaults]\nprefetch = 7\n"
        '[profile.p]\naddresses = ["tcp://a:1"]\nuser = "u"\npassword = "file:pw"\nack = "CLIENT"\n'
    )
    path.chmod(0o600)
    rows = {row["key"]: row for row in run("profile", "show", "p", is_json=True)}
    assert rows["prefetch"]["value"] == 7
    assert rows["prefetch"]["origin"] == f"[defaults], {path}:2"
    assert rows["password"]["value"] == "file:pw"
    assert rows["ack"]["value"] == "CLIENT"
    assert f"file: {path}" in run("client", "config", "show", "--profile", "p")
    (row,) = run("profile", "list", is_json=True)
    assert row == {"name": "p", "addresses": "tcp://a:1", "user": "u", "proof": "password"}
    assert "HMS-1061" in run("profile", "show", "q", code=1)


def test_a_check_without_a_node_has_the_typed_error(run, tmp_path):
    """And each fault of the file before that."""
    path = tmp_path / "c.toml"
    path.write_text('[profile.p]\naddresses = "tcp://127.0.0.1:1"\n[profile.q]\n')
    path.chmod(0o600)
    assert "name one with --profile" in run("profile", "check", "c.toml", code=2)
    assert "HMS-1006" in run("profile", "check", "c.toml", "--profile", "p", code=1)
    assert "has no addresses" in run("profile", "check", "c.toml", "--profile", "q", code=1)
    assert "HMS-1061" in run("profile", "check", "c.toml", "--profile", "r", code=1)
    assert "HMS-1060" in run("profile", "check", "d.toml", code=1)
    path.write_text("[profile.p]\nx = 1\n")
    assert f"{path}:2: [profile.p] unknown key 'x'" in run("profile", "check", "c.toml", code=1)


def test_a_command_takes_a_profile_in_place_of_an_address(run, tmp_path):
    """Not both, of which one would be ignored without a word."""
    path = tmp_path / "hms-client.toml"
    path.write_text('[profile.p]\naddresses = "tcp://127.0.0.1:1"\n')
    path.chmod(0o600)
    assert "HMS-1006" in run("queue", "list", "--profile", "p", code=1)
    assert "HMS-1061" in run("queue", "list", "--profile", "q", code=1)
    run("queue", "list", "--profile", "p", "--connect", "tcp://a:1", code=2)
    assert "HMS-1006" in run("history", "seal", "--profile", "p", code=1)
    run("history", "seal", "--profile", "p", "--connect", "tcp://a:1", code=2)
