"""Encrypted listeners at a real node: known keys are let in, and the others are told why."""

import threading
from types import SimpleNamespace

import msgspec
import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.boot.security_file import change_security
from hms.boot.server_keys import ServerKeys
from hms.boot.watched_files import next_key
from hms.server.links.keys import make_key_file, read_key_file
from hms.server.logins.security_document import KeyEntry
from hms.testing.ports import free_port
from tests.support.byte_proxy import ByteProxy
from tests.support.secured import PASSWORD, document, secured_node
from tests.support.waiting import wait_until

REPLACE = msgspec.structs.replace
ENDS = 3
BILLING = ["produce queue:orders", "consume queue:orders"]


class Place:
    """A node with a listener for known keys, one for any, and one for applications alone."""

    def __init__(self, folder):
        self.folder = folder
        self.server_key = make_key_file(folder / "server.key")
        self.of_user = make_key_file(folder / "user.key")
        self.of_office = make_key_file(folder / "office.key")
        self.unknown = make_key_file(folder / "unknown.key")
        self.addresses = {
            n: f"tcp://127.0.0.1:{free_port()}"
            for n in ("known", "any", "app", "far", "keys", "words")
        }
        held = document(billing=BILLING, other=[])
        users = dict(held.user)
        users["billing"] = REPLACE(users["billing"], keys=(self.of_user,))
        users["root"] = REPLACE(users["root"], password=users["billing"].password)
        self.held = REPLACE(held, user=users, key={"office": KeyEntry(public=self.of_office)})
        key = str(folder / "server.key")
        more = {"any": {"client_keys": "ANY"}, "app": {"client_keys": "ANY", "roles": ["b*"]}}
        more["far"] = {"client_keys": "ANY", "addresses": ["10.99.0.0/16"]}
        more["keys"] = {"mechanisms": ["KEY"]}
        more["words"] = {"mechanisms": ["PASSWORD"]}
        self.config = {
            "hms": {"queue": {"orders": {}}},
            "listener": {
                name: {"address": address, "server_key_file": key, **more.get(name, {})}
                for name, address in self.addresses.items()
            },
        }

    def connect(self, where="known", **given):
        given = {"server_keys": [self.server_key], "connect_timeout_s": 60, **given}
        if "key_file" in given:
            given["key_file"] = str(self.folder / given["key_file"])
        return hms.connect(self.addresses[where], **given)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    made = Place(tmp_path_factory.mktemp("c"))
    with secured_node(made.folder, made.held, made.config) as made.node:
        yield made


def test_a_known_key_needs_no_password(place):
    """It is the user's own; the whole way over TCP."""
    with place.connect(key_file="user.key") as connection, connection.session() as session:
        session.producer(hms.Queue("orders")).send(b"x" * 100_000)
        assert len(session.consumer(hms.Queue("orders")).receive(timeout_s=60).body) == 100_000
        with pytest.raises(hms.NotAuthorized) as caught:
            session.producer(hms.Queue("other"))
    assert caught.value.fields["user"] == "billing"


@pytest.mark.parametrize(
    ("where", "key_file"), [("known", "office.key"), ("any", "unknown.key"), ("any", "")]
)
def test_another_key_that_is_let_in_leads_to_the_login(place, where, key_file):
    """It admits, and proves nothing."""
    given = {"key_file": key_file} if key_file else {}
    with pytest.raises(hms.LoginRequired):
        place.connect(where, **given)
    with pytest.raises(hms.LoginRefused):
        place.connect(where, user="billing", password="wrong", **given)
    place.connect(where, user="billing", password=PASSWORD, **given).close()


@pytest.mark.parametrize(
    "given", [{"key_file": "unknown.key"}, {}, {"user": "billing", "password": PASSWORD}]
)
def test_a_key_that_is_not_known_is_refused(place, given):
    """Before a frame of it is read; the client is told, and does not try for ever."""
    with pytest.raises(hms.LoginRefused):
        place.connect(**given)


def test_a_wrong_server_key_is_told_and_the_right_one_of_several_found(place):
    """A password never reaches who cannot show the key."""
    with pytest.raises(hms.ServerKeyMismatch):
        place.connect(key_file="user.key", server_keys=[place.unknown])
    place.connect(key_file="user.key", server_keys=[place.unknown, place.server_key]).close()


def test_a_client_without_encryption_is_told_so(place):
    """Nothing of it arrives."""
    with pytest.raises(hms.ServerKeyMismatch):
        hms.connect(place.addresses["any"], user="billing", password=PASSWORD)


@pytest.mark.parametrize("count", [1, 2])
def test_machines_that_end_in_the_middle_of_a_handshake_are_an_outage(count):
    """One end at each of two, as while a node moves, was taken for an encrypted port: connect()
    gave up. So were two of one alone, which was killed twice and booted anew."""
    ends = []

    def cut_off(data):
        if len(ends) < ENDS:
            ends.append(data)
            raise OSError
        return data

    with hms.testing.node() as node:
        proxies = [ByteProxy(node.address, cut_off) for _ in range(count)]
        try:
            options = {"connect_timeout_s": 60, "reconnect_interval_s": 0.02}
            with hms.connect([one.address for one in proxies], **options) as connection:
                assert connection.administer("status")
        finally:
            for one in proxies:
                one.close()
    assert len(ends) == ENDS


def test_a_client_with_several_addresses_and_no_keys_is_told_so(place):
    """Not before a node had time to go, and not after connect_timeout_s alone."""
    addresses = [place.addresses["any"], place.addresses["known"]]
    with pytest.raises(hms.ServerKeyMismatch):
        hms.connect(
            addresses, user="billing", password=PASSWORD, connect_timeout_s=60,
            reconnect_interval_s=0.02,
        )  # fmt: skip


def test_a_server_key_at_an_open_node_is_a_mismatch(place):
    """Somebody who listens in the node's place looks like this."""
    with hms.testing.node() as other, pytest.raises(hms.ServerKeyMismatch):
        hms.connect(other.address, server_keys=[place.server_key], user="u", password=PASSWORD)


def test_a_listener_for_applications_keeps_administrators_out(place):
    """SE-04: their roles are not active there."""
    place.connect("app", user="billing", password=PASSWORD).close()
    with pytest.raises(hms.LoginRefused):
        place.connect("app", user="root", password=PASSWORD)


def test_a_listener_offers_some_ways_to_log_in(place):
    """mechanisms: keys alone, or passwords alone; the network key admits to both."""
    place.connect("keys", key_file="user.key").close()
    with pytest.raises(hms.LoginRequired) as told:
        place.connect("keys", key_file="office.key", user="billing", password=PASSWORD)
    assert told.value.fields["mechanisms"] == "KEY"
    with pytest.raises(hms.LoginRequired):
        place.connect("words", key_file="user.key")
    given = {"user": "billing", "password": PASSWORD}
    place.connect("words", key_file="office.key", **given).close()


def test_a_listener_for_other_networks_lets_nobody_in(place):
    """The address is looked at before the key."""
    with pytest.raises(hms.LoginRefused):
        place.connect("far", user="billing", password=PASSWORD)


def test_a_key_that_is_added_and_taken_away_counts_at_once(place):
    """Without a restart of the node."""

    def has(keys):
        def change(held):
            users = {**held.user, "other": REPLACE(held.user["other"], keys=keys)}
            return REPLACE(held, user=users)

        return change

    change_security(place.node.security, has((place.unknown,)))
    wait_until(lambda: _is_let_in(place))
    change_security(place.node.security, has(()))
    wait_until(lambda: not _is_let_in(place))


def _is_let_in(place):
    try:
        place.connect(key_file="unknown.key").close()
    except (hms.LoginRefused, hms.LoginRequired):  # taken away before, or within, the greeting
        return False
    return True


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda _: None, "No such file"),
        (lambda path: (path.write_text("nothing"), path.chmod(0o600)), "key pair"),
        (lambda path: (make_key_file(path), path.chmod(0o644)), "chmod 600"),
    ],
)
def test_a_key_file_that_cannot_be_used_is_named(tmp_path, place, make, said):
    """Before anything is sent."""
    make(tmp_path / "k")
    with pytest.raises(hms.KeyFileError) as caught:
        hms.connect(
            "tcp://127.0.0.1:1", server_keys=[place.server_key], key_file=str(tmp_path / "k")
        )

    assert said in str(caught.value)
    assert read_key_file(place.folder / "user.key").secret.decode() not in str(caught.value)


def test_a_node_does_not_boot_with_a_server_key_that_others_may_read(tmp_path):
    """Or without one."""
    place = Place(tmp_path)
    (tmp_path / "server.key").chmod(0o640)
    with (
        pytest.raises(hms.HmsError, match="chmod 600"),
        secured_node(tmp_path, place.held, place.config),
    ):
        pass


def test_a_server_key_is_exchanged_while_clients_work(tmp_path, monkeypatch):
    """They are told of the next one over the connection that they trust, and come back by it;
    others see another node."""
    place = Place(tmp_path)
    with secured_node(tmp_path, place.held, place.config) as node:
        monkeypatch.setenv("HMS_CONFIG", str(node.config_file))
        told = threading.Event()
        with place.connect(key_file="user.key", event_listener=lambda _: told.set()) as connection:
            session = connection.session()
            producer = session.producer(hms.Queue("orders"))
            consumer = session.consumer(hms.Queue("orders"))
            producer.send(b"before")
            following = _run("keys", "rotate", "known").strip()
            assert _run("keys", "rotate", "known").strip() == following
            assert following in _run("keys", "list", "--json")
            wait_until(lambda: connection.link.next_server_key == following.encode())

            _run("keys", "rotate", "known", "--switch")
            wait_until(lambda: f"listener known shows the key {following}" in node.log)
            assert told.wait(60)  # that it was closed
            producer.send(b"after")
            assert [consumer.receive(timeout_s=60).body for _ in range(2)] == [b"before", b"after"]

        with pytest.raises(hms.ServerKeyMismatch):
            place.connect(key_file="user.key")
        place.connect(key_file="user.key", server_keys=[place.server_key, following]).close()
        wait_until(lambda: "server key" in _run("audit", "list", "--json"))


def _run(*words):
    done = CliRunner().invoke(main, words, prog_name="hms")
    assert done.exit_code == 0, done.output
    return done.output


def test_a_next_key_that_cannot_be_used_changes_nothing(tmp_path, caplog):
    """Half a file, or one that others may read."""
    file, shown = tmp_path / "k", []
    make_key_file(file)
    keys = ServerKeys({"l": file}, None, SimpleNamespace(), lambda *given: shown.append(given))
    file.write_text("public x\n")
    keys.look()
    next_key(file).write_text("secret")
    keys.look()
    told = [record.levelname for record in caplog.records if record.name == "hms.security"]
    assert told == ["ERROR", "ERROR"]
    assert not shown
