"""AT-40: random secrets in every secret place, and where they must not be found."""

import json
import re
import secrets
import traceback
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.boot.security_file import change_security
from hms.server.links.keys import make_key_file, read_key_file
from hms.server.logins import document_changes as changes
from hms.server.logins.passwords import hash_password
from hms.server.logins.security_document import AuthenticatorEntry
from hms.testing.ports import free_port
from hms.wire import structures as wire
from tests.support.files_with import files_with
from tests.support.secured import document, secured_node
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("cold_boots")
REPLACE = msgspec.structs.replace


def hashed(password):
    return hash_password(password, time_cost=1, memory_kib=8 << 10)


class Planted:
    """A node that has each kind of secret, and the secrets by name."""

    def __init__(self, folder):
        words = ("password", "wrong password", "domain password", "bind password", "token")
        self.secrets = {word: secrets.token_urlsafe(24) for word in words}
        for word in ("server.key", "user.key"):
            make_key_file(folder / word)
            self.secrets[word] = read_key_file(folder / word).secret.decode()
        held = document(u=["produce queue:orders"])
        hash_ = hashed(self.secrets["password"])
        self.secrets["hash"] = hash_
        public = read_key_file(folder / "user.key").public.decode()
        user = REPLACE(held.user["u"], password=hash_, keys=(public,))
        (folder / "bind").write_text(self.secrets["bind password"])
        (folder / "bind").chmod(0o600)
        (folder / "ca.pem").write_bytes(b"")
        directory = AuthenticatorEntry(
            kind="ldap",
            urls=(f"ldap://127.0.0.1:{free_port()}",),
            bind_dn="cn=x",
            bind_password="file:bind",
            timeout_s=1,
        )
        held = REPLACE(held, user={**held.user, "u": user}, authenticator={"corp": directory})
        self.held = REPLACE(held, domain_password=hashed(self.secrets["domain password"]))
        self.secrets["domain hash"] = self.held.domain_password
        self.address = f"tcp://127.0.0.1:{free_port()}"
        listener = {"address": self.address, "server_key_file": str(folder / "server.key")}
        self.config = {
            "hms": {"queue": {"orders": {}}},
            "listener": {"clients": {**listener, "client_keys": "ANY"}},
        }


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("leaks")
    made = Planted(folder)
    with secured_node(folder, made.held, made.config) as made.node:
        made.folder = folder
        _use(made)
        yield made
    _ = made.node


def _use(planted):
    """Each secret is used, rightly and wrongly."""
    node, known = planted.node, planted.secrets
    made = []

    def with_token(held):
        after, token = changes.add_token(held, "ci", "u", _later())
        made.append(token)
        return after

    change_security(node.security, with_token)
    known["api token"] = made[0]
    planted.told = []
    right = {"user": "u", "password": known["password"]}
    with hms.connect(node.address, **right) as connection:
        known["resume"] = bytes(connection.link.welcome.resume).hex()
        planted.told += [
            repr(connection),
            repr(connection.link.hello),
            repr(connection.link._credentials),
        ]
    wait_until(lambda: _is_let_in(node, made[0]))
    wrongs = [
        {"user": "u", "password": known["wrong password"]},
        {"user": "nobody", "password": known["wrong password"]},
        {"token": known["token"]},
        {"user": "x" * 300, "password": known["wrong password"]},
    ]
    for wrong in wrongs:
        with pytest.raises(hms.HmsError) as caught:
            hms.connect(node.address, **wrong)
        planted.told += [str(caught.value), repr(caught.value), _traceback(caught.value)]
    server = read_key_file(planted.folder / "server.key").public.decode()
    key = str(planted.folder / "user.key")
    with hms.connect(planted.address, server_keys=[server], key_file=key) as connection:
        planted.told.append(repr(connection.link._credentials))
        connection.session().producer(hms.Queue("orders")).send(b"x")
    with hms.connect(node.address) as connection:
        connection.administer("queue.purge", {"name": "orders"})


def _later():
    from datetime import UTC, datetime, timedelta

    return datetime.now(UTC) + timedelta(hours=1)


def _is_let_in(node, token):
    try:
        hms.connect(node.address, token=token).close()
    except hms.LoginRefused:
        return False
    return True


def _traceback(error):
    """As a logger has it."""
    return "".join(traceback.format_exception(error))


def _hits(planted, data):
    """Names of the secrets that are in some bytes."""
    data = data if isinstance(data, bytes) else data.encode()
    return [name for name, secret in planted.secrets.items() if secret.encode() in data]


def test_at_40_no_secret_is_in_the_log_the_process_or_what_commands_print(
    planted, monkeypatch, record_property
):
    """0 hits of each in each place."""
    node = planted.node
    process = Path(f"/proc/{node.pid}")
    places = {
        "log": node.log_file.read_bytes(),
        "cmdline": (process / "cmdline").read_bytes(),
        "environ": (process / "environ").read_bytes(),
        "errors": "\n".join(planted.told),
    }
    commands = ["config show", "user list", "user show u", "status", "audit list", "audit export"]
    commands += ["keys list", "security check", "permission list", "role list", "client list"]
    commands += ["security export", "security export --running", "security diff"]
    commands += ["security reload", "permission matrix"]
    monkeypatch.setenv("HMS_CONFIG", str(node.config_file))
    for command in commands:
        for more in ([], ["--json"]):
            done = CliRunner().invoke(main, [*command.split(), *more], prog_name="hms")
            places[" ".join([*command.split(), *more])] = done.output
    hits = {place: found for place, data in places.items() if (found := _hits(planted, data))}
    count = len(planted.secrets)
    record_property(
        "figures", {"test": "AT-40", "secrets": count, "places": len(places), "hits": 0}
    )

    assert hits == {}
    assert all(data for place, data in places.items() if place in ("log", "config show"))


def test_at_40_no_secret_is_in_the_store_the_history_or_a_backup(planted, monkeypatch):
    """Nor in any file but those that are made for it."""
    monkeypatch.setenv("HMS_CONFIG", str(planted.node.config_file))
    copy = planted.folder / "copy"
    done = CliRunner().invoke(main, ["backup", "create", "--to", str(copy)], prog_name="hms")
    assert done.exit_code == 0, done.output
    assert any(file.is_file() and file.stat().st_size for file in copy.rglob("*"))
    kept = {"security.toml", "bind", "server.key", "user.key", "resume.keys"}
    roots = planted.node.folder, planted.folder, Path(planted.node.store)
    found = files_with(lambda data: _hits(planted, data), *roots)

    assert {file.name for file in found} <= kept, found
    for name in kept:
        assert (planted.folder / name).stat().st_mode & 0o077 == 0


def test_at_40_a_frame_with_a_secret_shows_nothing_of_it():
    """A repr ends in a log, a traceback or a debugger."""
    secret = secrets.token_urlsafe(24)
    shown = [
        repr(wire.Auth("PASSWORD", "u", secret.encode(), secret.encode())),
        repr(wire.Hello(1, secret=secret.encode(), resume=secret.encode())),
        repr(wire.Welcome(1, "n", 1, wire.Limits(1, 1, 1, 1, 1.0), resume=secret.encode())),
    ]

    assert secret not in json.dumps(shown)


def test_at_40_server_processes_do_not_inherit_secrets_of_the_node(tmp_path, monkeypatch):
    """A service's module is somebody else's code: it gets what its section lists, and no more."""
    node_s, listed = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
    for name, secret in (("BIND", node_s), ("LISTED", listed), ("PLAIN", "no secret")):
        monkeypatch.setenv(f"HMS_TEST_{name}", secret)
    (tmp_path / "calm.py").write_text(
        "from tpmon import service\n\n\n@service\ndef CALM(request):\n    return request.data\n"
    )
    (tmp_path / "ca.pem").write_bytes(b"")
    entries = {
        word: AuthenticatorEntry(
            kind="ldap",
            urls=(f"ldap://127.0.0.1:{free_port()}",),
            bind_dn="cn=x",
            bind_password=f"env:HMS_TEST_{word}",
        )
        for word in ("BIND", "LISTED")
    }
    held = REPLACE(document(u=[]), authenticator=entries)
    server = {"module": "calm", "python_path": [str(tmp_path)]}
    config = {
        "server": {"strict": server, "trusted": {**server, "secrets": ["HMS_TEST_LISTED"]}},
    }
    with secured_node(tmp_path, held, config) as node:
        found = {}
        for name in config["server"]:
            pid = re.search(rf"server {name} runs as process (\d+)", node.log)[1]
            found[name] = Path(f"/proc/{pid}/environ").read_bytes()
        own = Path(f"/proc/{node.pid}/environ").read_bytes()

    assert node_s.encode() in own
    for name, has in (("strict", False), ("trusted", True)):
        assert b"HMS_TEST_PLAIN=no secret" in found[name]
        assert node_s.encode() not in found[name]
        assert (listed.encode() in found[name]) == has
