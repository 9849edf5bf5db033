"""From an open node to a secured one by the command line, and the commands for users."""

import json
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import hms
from hms.boot.cli import main
from hms.boot.conf_editing import set_node_keys
from hms.boot.security_file import load_security, save_security
from hms.client.profiles.client_file import read_file
from hms.server.links.keys import make_key_file, read_key_file
from hms.server.logins.security_document import SecurityDocument, UserEntry
from hms.testing.ports import free_port
from tests.acceptance.netns_rig import make_lab
from tests.support.secured import cheap_hash, me
from tests.support.waiting import wait_until


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A command in a folder of its own; its text."""
    monkeypatch.chdir(tmp_path)

    def go(*words, code=0, given="", is_json=False):
        more = ["--json"] if is_json else []
        done = CliRunner().invoke(main, [*words, *more], prog_name="hms", input=given)
        assert done.exit_code == code, done.output
        return json.loads(done.stdout) if is_json else done.output

    return go


@pytest.fixture
def secured(run, tmp_path):
    """What hms config init and secure leave, with a password that is quick to check."""
    run("config", "init")
    text = set_node_keys((tmp_path / "hms.conf").read_text(), "NODE1", {
        "listen": [f"ipc://{tmp_path}/s"], "security": "security.toml",
    })  # fmt: skip
    (tmp_path / "hms.conf").write_text(text)
    entry = UserEntry(password=cheap_hash(), os_users=(me(),), roles=("admin", "security"))
    save_security(tmp_path / "security.toml", SecurityDocument(user={me(): entry}))
    return tmp_path / "security.toml"


def test_five_commands_from_open_to_secured_and_back(run, tmp_path):
    """What the how-to page promises, at a node that runs."""
    run("config", "init")
    before = (tmp_path / "hms.conf").read_text()
    assert "would be secured" in run("config", "secure", "--dry-run")
    assert (tmp_path / "hms.conf").read_text() == before
    said = run("config", "secure", is_json=True)
    kept = (tmp_path / "hms-client.toml").read_bytes()
    assert "is secured by" in run("config", "secure")
    assert (tmp_path / "hms-client.toml").read_bytes() == kept
    assert said["profile"] == str(tmp_path / "hms-client.toml")
    assert (tmp_path / "hms.conf.bak").read_text() == before
    run("boot", "--timeout", "200")
    try:
        assert "secured: 1 user," in run("status")
        met = run("profile", "check", "hms-client.toml", is_json=True)
        assert (met["profile"], met["user"], met["by"]) == (said["user"], said["user"], "PEER")
        assert any(one.startswith("view node:*") for one in met["permissions"])
        assert "orders" in run("queue", "list", "--profile", said["user"])
        run("role", "create", "billing")
        run("permission", "grant", "billing", "connect listener:*")
        run("permission", "grant", "billing", "produce queue:orders")
        run("user", "add", "billing", "--role", "billing", "--password", given="pass word\n")
        (address,) = said["listen"]
        _send(address, "billing", "pass word")
        _send(address, said["user"], said["password"])
        run("user", "disable", "billing")
        wait_until(lambda: _is_refused(address))
    finally:
        run("down")
    config = tmp_path / "hms.conf"
    text = config.read_text().replace(f'"{address}"', f'"{address}", "clients"')
    listener = '[listener.clients]\naddress = "tcp://127.0.0.1:1"\nserver_key_file = "k"\n'
    config.write_text(text + listener)
    assert "so are client profiles" in run("config", "open", "--yes")
    assert '"clients"' not in config.read_text()
    assert 'security = "' not in (tmp_path / "hms.conf").read_text().replace('# security = "', "")


def test_a_client_file_that_is_there_is_kept(run, tmp_path):
    """It may be of another node; then the profile is exported where the operator says."""
    run("config", "init")
    (tmp_path / "hms-client.toml").write_text("[profile.mine]\n")
    told = run("config", "secure", "--user", "root")
    assert "hms-client.toml is kept as it is" in told
    assert "hms profile export root --user root" in told
    assert (tmp_path / "hms-client.toml").read_text() == "[profile.mine]\n"


def files(folder):
    """What stands in the folder."""
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_security_file_that_is_gone_is_told_with_the_way_back(run, secured):
    """It said "is secured by" a file that was not there, and the node did not boot."""
    secured.unlink()

    said = run("config", "secure", code=1)
    assert "HMS-1039" in said
    assert "hms config open, hms config secure" in said
    run("config", "open", "--yes")
    run("config", "secure")
    assert load_security(secured).user


def test_who_is_no_administrator_any_more_is_told_how_to_become_one(run, secured, tmp_path):
    """A command cannot connect "with a user and password", as the cure said."""
    secured.unlink()
    entry = UserEntry(password=cheap_hash(), os_users=("nobody",), roles=("admin", "security"))
    save_security(secured, SecurityDocument(user={"boss": entry}))
    run("boot", "--timeout", "200")
    try:
        said = run("queue", "list", code=1)
        assert "HMS-1032" in said
        assert "--os-user" in said
        run("user", "alter", "boss", "--os-user", me())
        wait_until(lambda: _lists(run), 60)
    finally:
        run("down")


def _lists(run):
    with suppress(AssertionError):
        return "orders" in run("queue", "list")
    return False


def test_one_command_opens_a_secured_node_to_other_machines(run, tmp_path):
    """What it prints is enough to get in; a second run changes nothing."""
    run("config", "init")
    before, address = files(tmp_path), f"tcp://127.0.0.1:{free_port()}"
    listen = ("config", "secure", "--user", "root", "--listen", address)
    assert "would be secured" in run(*listen, "--dry-run")
    assert files(tmp_path) == before

    told = run(*listen)
    after = files(tmp_path)
    assert set(after) - set(before) == {
        "security.toml", "hms.conf.bak", "NODE1.server.key", "root.key", "root.toml",
    }  # fmt: skip
    again = run(*listen, is_json=True)
    assert files(tmp_path) == after
    steps = ("1. hms boot", "2. copy root.toml", "hms profile check root.toml", "3. for each")
    assert all(step in told for step in steps)
    profile = Path(again["profile"])
    assert str(profile) in told
    assert profile.stat().st_mode & 0o777 == 0o600
    assert read_file(profile).profiles["root"] == {
        "addresses": (address,),
        "server_keys": (again["server_key"],),
        "key_file": again["key_file"],
    }


OTHER_MACHINE = """
import json, sys, time, hms

def outcome(case):
    try:
        with hms.connect(reconnect=False, **case) as connection:
            with connection.session() as session:
                session.producer(hms.Queue("orders")).send(b"from far away")
                return session.consumer(hms.Queue("orders")).receive(timeout_s=60).body.decode()
    except hms.HmsError as error:
        return type(error).__name__

found = []
for case in json.loads(sys.argv[1]):
    began = time.monotonic()
    found.append((outcome(case), round(time.monotonic() - began, 2)))
print(json.dumps(found))
"""


def _carried(folder):
    """What another machine has: the exported profile with its key, and three that are not good."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (folder / "billing.key").rename(elsewhere / "billing.key")
    good = (folder / "billing.toml").read_text()
    make_key_file(elsewhere / "unknown.key")
    (elsewhere / "secret").write_text("wrong\n")
    (elsewhere / "secret").chmod(0o600)
    (shown,) = read_file(folder / "billing.toml").profiles["billing"]["server_keys"]
    other = read_key_file(elsewhere / "unknown.key").public.decode()
    blocks = [
        good,
        _named("unknown", good).replace('"billing.key"', '"unknown.key"'),
        _named("wrong", good) + 'user = "billing"\npassword = "file:secret"\n',
        _named("other", good).replace(json.dumps(shown), json.dumps(other)),
    ]
    (elsewhere / "hms-client.toml").write_text("\n".join(blocks))
    return elsewhere


def _named(name, text):
    return text.replace("[profile.billing]", f"[profile.{name}]")


def test_a_machine_elsewhere_works_with_what_was_exported_and_with_nothing_else(
    run, tmp_path, record_property
):
    """Must show 1: node and client in network namespaces of their own, joined by veth pairs. Init,
    secure, boot; then the exported profile, none, and the same one with another client key, with a
    wrong password, and with another server key. The client has what was carried there alone."""
    with closing(make_lab(2)) as lab:
        run("config", "init")
        address = f"tcp://{lab.address(1)}:7700"
        run("config", "secure", "--user", "root", "--listen", address)
        run("role", "create", "billing")
        for permission in ("connect listener:*", "produce queue:orders", "consume queue:orders"):
            run("permission", "grant", "billing", permission)
        run("user", "add", "billing", "--role", "billing")
        run("profile", "export", "billing", "--user", "billing", "--new-key")
        elsewhere = _carried(tmp_path)
        held = load_security(tmp_path / "security.toml")
        known = replace(held.user["billing"], password=cheap_hash())
        save_security(
            tmp_path / "security.toml", replace(held, user=held.user | {"billing": known})
        )
        names = ("billing", "unknown", "wrong", "other")
        cases = [{"profile": names[0]}, {"address": address}]
        cases += [{"profile": name} for name in names[1:]]
        boot = [sys.executable, "-m", "hms.boot", "boot", "--timeout", "200"]
        subprocess.run([*lab.prefix(1), *boot], check=True, capture_output=True, timeout=250)
        try:
            client = [sys.executable, "-c", OTHER_MACHINE, json.dumps(cases)]
            there = {"cwd": elsewhere, "capture_output": True, "timeout": 250}
            done = subprocess.run([*lab.prefix(2), *client], check=True, **there)
            checking = [*lab.prefix(2), sys.executable, "-m", "hms.boot", "profile", "check"]
            checks = [
                subprocess.run(
                    [*checking, "hms-client.toml", "--profile", name],
                    check=False,
                    text=True,
                    **there,
                )
                for name in ("billing", "unknown")
            ]
        finally:
            run("down")
    assert [one.returncode for one in checks] == [0, 1]
    assert "may produce queue:orders" in checks[0].stdout
    assert "HMS-1031" in checks[1].stderr
    found, times_s = zip(*json.loads(done.stdout), strict=True)
    record_property("figures", {"must show": 1, "seconds": times_s})
    assert list(found) == [
        "from far away", "ServerKeyMismatch", "LoginRefused", "LoginRefused", "ServerKeyMismatch",
    ]  # fmt: skip


CROWD = """
import json, sys, time, hms

keys = json.loads(sys.argv[2])
found, held = [], []
for _ in range(4):
    try:
        held.append(hms.connect(sys.argv[1], reconnect=False, **keys))
        found.append("in")
    except hms.HmsError as error:
        found.append(str(error))
held[0].close()
until = time.monotonic() + 60
while time.monotonic() < until:
    try:
        held.append(hms.connect(sys.argv[1], reconnect=False, **keys))
        found.append("in again")
        break
    except hms.AddressLimit:
        time.sleep(0.02)
print(json.dumps(found))
"""


def test_a_machine_has_as_many_connections_as_one_address_may(run):
    """One more is refused and told why, while another machine, and this one, go on."""
    with closing(make_lab(3)) as lab:
        run("config", "init")
        address = f"tcp://{lab.address(1)}:7700"
        said = run("config", "secure", "--user", "root", "--listen", address, is_json=True)
        conf = Path("hms.conf")
        text = set_node_keys(conf.read_text(), "NODE1", {"max_connections_per_address": 2})
        conf.write_text(text)
        keys = {"server_keys": [said["server_key"]], "key_file": said["key_file"]}
        boot = [sys.executable, "-m", "hms.boot", "boot", "--timeout", "200"]
        subprocess.run([*lab.prefix(1), *boot], check=True, capture_output=True, timeout=250)
        try:
            for machine in (2, 3):
                client = [sys.executable, "-c", CROWD, address, json.dumps(keys)]
                done = subprocess.run(
                    [*lab.prefix(machine), *client], check=True, capture_output=True, timeout=250
                )
                one, two, three, four, again = json.loads(done.stdout)
                assert (one, two, again) == ("in", "in", "in again")
                told = f"{lab.address(machine)} has 2 connections to the node"
                assert told in three
                assert told in four
            with hms.connect(said["listen"][0]), hms.connect(said["listen"][0]):
                assert "secured" in run("status")
        finally:
            run("down")


def test_a_real_boot_refuses_each_damaged_file_and_names_it(run, secured, tmp_path):
    """Three of the thirty, a security file, a key file and a configuration, by hms boot itself: no
    node is left behind, and the store is not begun."""
    run("config", "secure", "--listen", f"tcp://127.0.0.1:{free_port()}")
    config, (key,) = tmp_path / "hms.conf", tmp_path.rglob("NODE1.server.key")
    whole = {path: path.read_bytes() for path in (secured, config, key)}
    line = whole[secured].count(b"\n") + 2
    fault = b'\n[role.x]\npermissions = ["fly queue:*"]\n'
    damaged = [
        (secured, fault, 0o600, f"security.toml:{line + 1}: "),
        (key, b"", 0o644, "NODE1.server.key"),
        (config, b"\n[listener.more]\nadress = 1\n", 0o600, "hms.conf:"),
    ]
    for path, more, mode, named in damaged:
        path.write_bytes(whole[path] + more)
        path.chmod(mode)
        said = run("boot", "--timeout", "200", code=1)
        assert named in said
        assert not list(tmp_path.rglob("0000*.log"))
        path.write_bytes(whole[path])
        path.chmod(0o600)
    run("config", "check")


def test_a_node_that_is_secured_gets_what_a_listener_lacks(run, secured, tmp_path):
    """A second way of one that has its users already; never in the place of another listener."""
    address = f"tcp://127.0.0.1:{free_port()}"
    listen = ("config", "secure", "--listen")
    before = files(tmp_path)
    run(*listen, address, "--user", "nobody-here", code=1)
    run(*listen, "ipc:///x", code=1)
    run(*listen, "tcp://127.0.0.1:99999", code=1)
    run(*listen, address, "--dry-run")
    assert files(tmp_path) == before

    said = run(*listen, address, is_json=True)

    key = read_key_file(Path(said["key_file"])).public.decode()
    assert load_security(secured).user[me()].keys == (key,)
    assert set(files(tmp_path)) == {
        *before, "hms.conf.bak", "NODE1.server.key", f"{me()}.key", f"{me()}.toml",
        "security.toml.lock",
    }  # fmt: skip
    assert said["server_key"] in run("keys", "list")
    run("config", "check")
    run(*listen, "tcp://127.0.0.1:7701", code=1)


def _send(address, user, password):
    """A changed file holds within a second, on a machine that has one for the node."""

    def is_sent():
        with (
            suppress(hms.LoginRefused, hms.NotAuthorized),
            hms.connect(address, user=user, password=password) as connection,
            connection.session() as session,
        ):
            session.producer(hms.Queue("orders")).send(b"x")
            return True
        return False

    wait_until(is_sent, pause_s=0.2)


def _is_refused(address):
    try:
        hms.connect(address, user="billing", password="pass word").close()
    except hms.LoginRefused:
        return True
    return False


def test_a_user_s_life(run, secured):
    """Added, changed, shown without secrets, disabled, deleted."""
    run(
        "user", "add", "u", "--role", "monitor", "--os-user", "clerk", "--password", given="first\n"
    )
    shown = run("user", "show", "u", is_json=True)
    assert shown["roles"] == ["monitor"]
    assert shown["logs in by"] == ["password", "process"]
    assert "argon2" not in run("user", "show", "u")
    Path(secured.parent / "p").write_text("second\n")
    run("user", "password", "u", "--password-file", "p")
    assert load_security(secured).user["u"].generation == 2
    run("user", "alter", "u", "--role", "operator", "--no-role", "monitor")
    run("user", "logout", "u")
    run("user", "disable", "u")
    assert load_security(secured).user["u"].roles == ("operator",)
    assert not load_security(secured).user["u"].enabled
    run("user", "enable", "u")
    token = run("user", "token", "u", "--for", "1d", is_json=True)
    assert token["token"] not in secured.read_text()
    run("user", "revoke-token", token["id"])
    run("user", "delete", "u", "--yes")
    assert [row["name"] for row in run("user", "list", is_json=True)] == [me()]


def test_a_check_explains_itself(run, secured):
    """The deciding permission with its way of roles, or what comes nearest."""
    run("role", "create", "base")
    run("permission", "grant", "base", "consume queue:in")
    run("role", "create", "team", "--role", "base")
    run("user", "add", "u", "--role", "team")

    assert "consume queue:in (role team > base)" in run(
        "permission", "check", "u", "consume", "queue:in"
    )
    said = run("permission", "check", "u", "produce", "queue:in", code=1)
    assert "no role grants it; nearest:" in said
    assert run("permission", "list", "--user", "u", is_json=True)[0]["user"] == "u"
    assert "version" in run("security", "check")


def test_a_permission_that_is_hardly_meant_is_granted_with_a_warning(run, secured):
    """It may be the name of a topic; who meant all topics is told, now and by a check."""
    run("role", "create", "base")
    assert "warning" not in run("permission", "grant", "base", "subscribe topic:a/+")
    for words in (["permission", "grant", "base", "subscribe topic:*"], ["security", "check"]):
        said = run(*words)
        assert "warning: subscribe topic:*: in a topic * and ? stand for themselves" in said
        assert "did you mean subscribe topic:#?" in said
    assert "subscribe topic:*" in load_security(secured).role["base"].permissions


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["user", "add", "u", "--role", "monitr"], "did you mean 'monitor'?"),
        (["user", "add", "a b"], "is no name"),
        (["user", "show", "nobody"], "there is no user 'nobody'"),
        (["user", "key", "nobody", "x"], "there is no user 'nobody'"),
        (["role", "create", "admin"], "built in"),
        (["role", "delete", "nothing"], "there is no role 'nothing'"),
        (["permission", "grant", "monitor", "produce queue:x"], "built in"),
        (["permission", "grant", "nothing", "produce queue:x"], "there is no role 'nothing'"),
        (["permission", "check", "nobody", "produce", "queue:x"], "there is no user"),
        (["user", "delete", "--yes", "ME"], "nobody would be left"),
        (["user", "disable", "ME"], "nobody would be left"),
        (["user", "alter", "ME", "--no-role", "security"], "nobody would be left"),
        (["user", "token", "ME", "--for", "1y"], "such as 90d"),
        (["user", "list", "--connect", "ipc:///x"], "Give --config"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(run, secured, words, said):
    """Each with the word that would do."""
    before = secured.read_bytes()

    assert said in run(*[me() if word == "ME" else word for word in words], code=1)
    assert secured.read_bytes() == before


def test_an_open_node_has_no_users(run):
    """The command says how it gets some."""
    run("config", "init")

    assert "hms config secure" in run("user", "list", code=1)


def test_every_fault_of_the_file_is_told_with_its_line(run, secured):
    """Like those of hms.conf."""
    secured.write_text(
        secured.read_text().replace("version = 1", "version = 0").replace("roles", "rolse")
    )

    said = run("security", "check", code=1)

    assert f"{secured}:3: version counts from 1" in said
    assert "did you mean 'roles'?" in said


def test_from_where_and_until_when_a_user_comes_is_set_by_a_command(run, secured):
    """Before, the file had to be edited."""
    run("user", "add", "u", "--password", given="pass word\n")
    run("user", "alter", "u", "--address", "10.20.0.0/16", "--os-group", "till")
    run("user", "alter", "u", "--address", "10.30.0.1", "--not-after", "2027-01-31")
    entry = load_security(secured).user["u"]
    assert entry.addresses == ("10.20.0.0/16", "10.30.0.1")
    assert entry.os_groups == ("till",)
    assert entry.not_after.isoformat() == "2027-01-31T00:00:00+00:00"
    made = run("user", "token", "u", "--for", "1d", is_json=True)
    shown = run("user", "show", "u", is_json=True)
    assert (shown["os_groups"], shown["tokens"]) == (["till"], [made["id"]])
    assert shown["token_ends"][made["id"]] == made["expires_at"]

    run("user", "alter", "u", "--not-after", "2027-01-31T12:00:00+02:00", "--no-os-group", "till")
    left = ["--no-address", "10.20.0.0/16", "--no-address", "10.30.0.1"]
    run("user", "alter", "u", *left)
    entry = load_security(secured).user["u"]
    assert (entry.addresses, entry.os_groups) == ((), ())
    assert entry.not_after.isoformat() == "2027-01-31T12:00:00+02:00"
    run("user", "alter", "u", "--not-after", "none")
    assert load_security(secured).user["u"].not_after is None


@pytest.mark.parametrize(
    ("option", "value"), [("--address", "10.20.0.0/40"), ("--not-after", "tomorrow")]
)
def test_a_network_or_a_time_that_is_none_changes_nothing(run, secured, option, value):
    """It names the word that is wrong."""
    run("user", "add", "u", "--password", given="pass word\n")
    before = secured.read_bytes()

    assert value in run("user", "alter", "u", option, value, code=1)
    assert secured.read_bytes() == before
