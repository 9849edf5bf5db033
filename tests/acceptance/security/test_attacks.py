"""The attacks of the specification's table, AT-01 to AT-48, each by its number, with the figure of
its bar. ELSEWHERE names the tests that show a row, ABSENT why a row has nothing to be shown on.

The walks of AT-35 and the measurement of AT-12 in full, 5,000 logins each, or HMS_LOGINS of them:

    HMS_ATTACKS=full python -m pytest tests/acceptance/security -k "at_12 or at_35"
"""

import contextlib
import logging
import os
import random
import re
import socket
import threading
import time
import tracemalloc
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import zmq

import hms
from hms.boot.config import load
from hms.boot.listening import listening
from hms.boot.securing import Securing
from hms.boot.security_file import load_security, save_security, security_text
from hms.records import RecordType
from hms.records.audit import decode_audit
from hms.server.broker import Lost
from hms.server.listening_sockets import check_zeromq
from hms.server.logins import document_changes as changes
from hms.server.logins.callers import Caller
from hms.server.logins.identities import NODE_USER
from hms.server.logins.login_limits import KEYS_MAX, LoginLimits
from hms.server.logins.resume_tokens import ResumeTokens
from hms.server.logins.security_document import SecuritySettings, is_name
from hms.wire import frames
from hms.wire import structures as wire
from hms.wire.frames import Kind, frame
from tests.acceptance.security.test_encrypted import Place
from tests.acceptance.security.test_revocation import without
from tests.support import zmtp
from tests.support.byte_proxy import ByteProxy
from tests.support.gated import LOCAL, GatedNode
from tests.support.hello import hello_of
from tests.support.largest import pack, send
from tests.support.login_times import ATTACKS_FULL, compared
from tests.support.memory import SETTINGS, MemoryNode
from tests.support.secured import PASSWORD, document, secured_node
from tests.support.waiting import wait_until
from tpmon.scheduling.monitor import Monitor

REPLACE = msgspec.structs.replace
T_MAX = 4.5
ROOT = Path(__file__).parents[3]
SECURITY = "tests/acceptance/security/"
ELSEWHERE = {
    2: ["tests/acceptance/test_held_bytes.py::test_a_node_holds_no_more_than_it_may"],
    18: ["tests/unit/server/test_login_gate.py::test_another_user_does_not_take_a_connection_over"],
    19: [
        "tests/unit/server/test_login_gate.py::test_equal_client_ids_of_two_users_never_meet",
        SECURITY + "test_revocation.py::test_a_durable_subscription_of_another_user_is_not_resumed",
    ],
    26: [SECURITY + "test_matrix.py::test_exactly_the_granted_cells_are_permitted"],
    27: [SECURITY + "test_matrix.py::test_absent_and_present_resources_are_refused_alike"],
    31: [SECURITY + "test_lives_of_logins.py::test_nobody_guesses_the_name_of_a_temporary_queue"],
    32: [SECURITY + "test_matrix.py::test_exactly_the_granted_cells_are_permitted"],
    33: [
        SECURITY + "test_matrix.py::test_the_end_of_a_branch_of_others_is_for_recovery",
        SECURITY + "test_matrix.py::test_a_file_of_others_is_not_read_by_its_name",
    ],
    34: [SECURITY + "test_revocation.py::test_a_thousand_consumers_are_closed_at_once_and_their"],
    37: [
        "tests/integration/test_cluster_links.py::test_with_keys_nodes_hear_one_another_and_nobody",
        "tests/integration/test_cluster_links.py::test_a_node_with_the_key_of_another_one_is",
    ],
    38: [SECURITY + "test_audit.py::test_each_flipped_byte_of_a_chain_is_found_at_its_record"],
    41: ["tests/acceptance/test_connections_flood.py::test_a_flood_of_connections_neither"],
    42: [
        SECURITY + "test_user_limits.py::test_a_sender_above_its_rate_waits_and_the_others_do_not"
    ],
    44: [
        "tests/acceptance/operations/test_console.py::test_another_site_can_order_nothing",
        "tests/acceptance/operations/test_console.py::test_every_page_shows_what_there_is_and",
        "tests/acceptance/operations/test_console.py::test_sessions_are_bounded_and_their",
    ],
    43: [
        "tests/acceptance/test_clock_steps.py::test_setting_the_clock_expires_nothing_early_and",
        "tests/acceptance/test_clock_steps.py::test_time_goes_on_after_a_boot_with_the_clock_behind",
    ],
}
ABSENT = {}
BILLING = ["produce queue:orders", "consume queue:orders"]


def test_each_row_has_a_test_or_a_reason():
    """No row is forgotten; what is named elsewhere is there."""
    own = {int(n) for n in re.findall(r"def test_at_(\d\d)_", Path(__file__).read_text())}
    files = [*Path(__file__).parent.glob("test_*.py")]
    for file in files:
        own |= {int(n) for n in re.findall(r"def test_at_(\d\d)_", file.read_text())}
    for places in ELSEWHERE.values():
        for place in places:
            path, _, name = place.partition("::")
            assert f"def {name}" in (ROOT / path).read_text(), place

    assert sorted(own | {*ELSEWHERE} | {*ABSENT}) == list(range(1, 49))
    assert not own & {*ABSENT}


@pytest.fixture
def told(record_property):
    """Tells the figures of a row."""

    def tell(row, **figures):
        record_property("figures", {"test": f"AT-{row:02d}", **figures})

    return tell


@pytest.fixture
def held():
    return document(u=BILLING, v=["consume queue:orders"])


@pytest.fixture
def node(held):
    return GatedNode(held)


@pytest.fixture
def strict(held):
    """A node with the limits that are the default."""
    return GatedNode(REPLACE(held, security=SecuritySettings()))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A real node with encrypted listeners."""
    made = Place(tmp_path_factory.mktemp("a"))
    with secured_node(made.folder, made.held, made.config) as made.node:
        yield made


def resident(node):
    return int(Path(f"/proc/{node.pid}/statm").read_text().split()[1]) * 4096


def descriptors(node):
    return len(list(Path(f"/proc/{node.pid}/fd").iterdir()))


@contextmanager
def sampled(node):
    """The most that the node had in memory, beyond what it had before."""
    before, most, over = resident(node), [0], threading.Event()

    def look():
        while not over.wait(0.005):
            most[0] = max(most[0], resident(node) - before)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()


def round_trip(connection, rounds=20):
    """An honest client at work."""
    with connection.session() as session:
        out, inn = session.producer(hms.Queue("orders")), session.consumer(hms.Queue("orders"))
        for _ in range(rounds):
            out.send(b"x")
            assert inn.receive(timeout_s=60).body == b"x"


# the network

ENDLESS_PARTS = 32_768
PART = bytes(64 << 10)
GROWTH_MAX = 64 << 20


def attacker(stack, address, server_key="", key_file=None):
    """A libzmq socket that tries once, and its monitor."""
    from hms.server.links.keys import read_key_file

    context = stack.enter_context(zmq.Context())
    wild = context.socket(zmq.DEALER)
    stack.callback(wild.close, 0)
    for option in (zmq.LINGER, zmq.SNDHWM, zmq.RCVHWM):
        wild.setsockopt(option, 0)
    wild.setsockopt(zmq.RECONNECT_IVL, -1)
    if server_key:
        pair = read_key_file(key_file) if key_file else None
        public, secret = (pair.public, pair.secret) if pair else zmq.curve_keypair()
        wild.curve_serverkey = server_key.encode()
        wild.curve_publickey, wild.curve_secretkey = public, secret
    monitor = wild.get_monitor_socket()
    stack.callback(monitor.close, 0)
    wild.connect(address)
    return wild, monitor


def is_over(monitor):
    """Whether the connection has ended, or its handshake failed."""
    ends = int(zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED)
    ends |= zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    while monitor.poll(0):
        if int.from_bytes(monitor.recv_multipart()[0][:2], "little") & ends:
            return True
    return False


CASES = ["unknown key", "before login", "after login", "open node", "open node, ipc"]


@pytest.mark.parametrize("case", CASES)
def test_at_01_an_endless_message_is_cut_alone(place, told, case, tmp_path):
    """2 GiB of one message; the honest client beside it is served."""
    with ExitStack() as stack:
        running = place.node
        is_open = case.startswith("open node")
        if is_open:
            address = f"ipc://{tmp_path}/s" if "ipc" in case else "tcp://127.0.0.1:*"
            own = {"listen": [address], "max_message_bytes": "16 MiB"}  # the default
            config = {"hms": {"queue": {"orders": {}}}, "node": {"NODE1": own}}
            running = stack.enter_context(hms.testing.node(config=config))
            honest = stack.enter_context(hms.connect(running.address))
            wild, monitor = attacker(stack, running.address)
        else:
            honest = stack.enter_context(place.connect(key_file="user.key"))
            where = "any" if case == "before login" else "known"
            own = place.folder / "user.key" if case == "after login" else None
            wild, monitor = attacker(stack, place.addresses[where], place.server_key, own)
        most = stack.enter_context(sampled(running))
        if is_open or case == "after login":
            wild.send_multipart(frame(Kind.HELLO, wire.encode(hello_of(77)), 1))
            assert wild.poll(60_000)
            envelope = frames.decode_envelope(wild.recv_multipart(), 1 << 20)
            assert envelope.kind is Kind.WELCOME
        with suppress(zmq.Again):  # whoever was refused meanwhile has nobody to send to
            for _ in range(ENDLESS_PARTS):
                wild.send(PART, zmq.SNDMORE | zmq.NOBLOCK, copy=False)
            wild.send(PART, zmq.NOBLOCK)
        round_trip(honest)
        wait_until(lambda: is_over(monitor))
        round_trip(honest)
        with suppress(OSError):
            assert honest.is_connected
    told(1, case=case.replace(" ", "_"), growth_mib=most[0] >> 20)
    assert most[0] < GROWTH_MAX


@pytest.mark.parametrize("mechanism", ["NULL", "PLAIN", "CURVE without the key"])
@pytest.mark.parametrize("where", ["known", "any"])
def test_at_03_another_mechanism_brings_nothing_to_an_encrypted_listener(place, mechanism, where):
    """Not one frame arrives."""
    before = place.node.log.count("is let in")
    with ExitStack() as stack:
        context = stack.enter_context(zmq.Context())
        wild = context.socket(zmq.DEALER)
        stack.callback(wild.close, 0)
        wild.setsockopt(zmq.LINGER, 0)
        wild.setsockopt(zmq.RECONNECT_IVL, -1)
        if mechanism == "PLAIN":
            wild.plain_username, wild.plain_password = b"root", PASSWORD.encode()
        elif mechanism != "NULL":
            wild.curve_serverkey = place.unknown.encode()
            wild.curve_publickey, wild.curve_secretkey = zmq.curve_keypair()
        monitor = wild.get_monitor_socket()
        stack.callback(monitor.close, 0)
        wild.connect(place.addresses[where])
        with contextlib.suppress(zmq.Again):  # it is over already: a send would wait for ever
            wild.send_multipart(frame(Kind.HELLO, wire.encode(hello_of(78)), 1), zmq.NOBLOCK)
        wait_until(lambda: is_over(monitor))
        assert not wild.poll(0)
    if mechanism == "NULL":
        with pytest.raises(hms.ServerKeyMismatch):
            hms.connect(place.addresses[where], connect_timeout_s=60)
    assert place.node.log.count("is let in") == before


def test_at_04_a_man_in_the_middle_gets_no_password(place, told):
    """An impostor with a key of its own, and one who only listens."""
    with ExitStack() as stack:
        context = stack.enter_context(zmq.Context())
        impostor = context.socket(zmq.ROUTER)
        stack.callback(impostor.close, 0)
        impostor.curve_server, impostor.curve_secretkey = True, zmq.curve_keypair()[1]
        port = impostor.bind_to_random_port("tcp://127.0.0.1")
        middle = ByteProxy(f"tcp://127.0.0.1:{port}")
        stack.callback(middle.close)
        login = {"server_keys": [place.server_key], "user": "billing", "password": PASSWORD}
        with pytest.raises(hms.ServerKeyMismatch):
            hms.connect(middle.address, connect_timeout_s=60, **login)
        assert not impostor.poll(0)
        listening = ByteProxy(place.addresses["any"])
        stack.callback(listening.close)
        hms.connect(listening.address, connect_timeout_s=60, **login).close()
        assert listening.said
        for said in (middle.said, listening.said):
            assert PASSWORD.encode() not in said
            assert b"billing" not in said
    told(4, recorded_bytes=len(middle.said) + len(listening.said), frames_at_impostor=0)


def test_at_05_nobody_else_can_listen_in_the_place_of_a_local_socket(tmp_path, held):
    """Another user of the machine would be sent what is meant for the node."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "foreign").mkdir()
    os.chown(tmp_path / "foreign", 65_000, 65_000)
    cases = {
        f"ipc://{tmp_path}/open/s": "others may write",
        f"ipc://{tmp_path}/link": "symbolic link",
        f"ipc://{tmp_path}/foreign/s": "another user",
        f"ipc://{tmp_path}/absent/s": "cannot be looked at",
    }
    save_security(tmp_path / "security.toml", held)
    for address, said in cases.items():
        conf = tmp_path / "hms.conf"
        text = f'[node.NODE1]\nlisten = ["{address}"]\nsecurity = "security.toml"\n'
        conf.write_text(text)
        config = load(conf)
        with pytest.raises(hms.InvalidArgument, match=said):
            listening(config, config.node("NODE1"))
        conf.write_text(text.replace("security =", "# security ="))
        listening(load(conf), load(conf).node("NODE1"))


def test_at_06_half_handshakes_free_their_descriptors(place, told):
    """Silent, half greeted, and garbage, at encrypted listeners."""
    curve = zmtp.HANDSHAKE[:12] + b"CURVE" + bytes(15) + bytes(32)
    hello = b"\x04\xc8\x05HELLO" + os.urandom(194)
    zmtp1, zmtp2 = b"\x01\x00", b"\xff" + bytes(8) + b"\x7f\x01\x05"
    saids = [b"", curve, curve + hello, os.urandom(300), zmtp1, zmtp2, b"GET / HTTP/1.1\r\n\r\n"]
    before = descriptors(place.node)
    with ExitStack() as stack:
        for nth in range(210):
            where = ("known", "any")[nth % 2]
            host, _, port = place.addresses[where].removeprefix("tcp://").rpartition(":")
            one = stack.enter_context(socket.create_connection((host, int(port))))
            one.settimeout(5)
            with suppress(OSError):
                one.sendall(saids[nth % len(saids)])
        with place.connect(key_file="user.key") as honest:
            round_trip(honest, 5)
        wait_until(lambda: descriptors(place.node) <= before + 4)
    told(6, strangers=210, descriptors_left=max(0, descriptors(place.node) - before))


def test_at_07_a_recorded_session_is_worth_nothing(place):
    """Each has keys of its own; and a client of the version before is told to log in."""
    listening = ByteProxy(place.addresses["known"])
    place_address = {"server_keys": [place.server_key], "key_file": str(place.folder / "user.key")}
    with (
        hms.connect(listening.address, connect_timeout_s=60, **place_address) as connection,
        connection.session() as session,
    ):
        session.producer(hms.Queue("orders")).send(b"once")
    recorded = bytes(listening.said)
    listening.close()
    let_in = place.node.log.count("is let in")
    host, _, port = place.addresses["known"].removeprefix("tcp://").rpartition(":")
    for _ in range(3):
        with socket.create_connection((host, int(port))) as raw, suppress(OSError):
            raw.settimeout(10)
            raw.sendall(recorded)
            while raw.recv(65536):
                pass
    with place.connect(key_file="user.key") as connection, connection.session() as session:
        inn = session.consumer(hms.Queue("orders"))
        assert inn.receive(timeout_s=60).body == b"once"
        assert inn.receive(timeout_s=0.5) is None
    assert place.node.log.count("is let in") == let_in + 1


# before the login


def test_at_08_every_frame_at_every_time_leaves_no_state(held, told):
    """Nothing but HELLO and then AUTH leads anywhere."""
    cells = 0
    kinds = [kind for kind in Kind if kind < Kind.WELCOME]
    for state in ("nothing", "challenged", "checking", "closed", "refused"):
        for kind in kinds:
            node = GatedNode(held)
            if state != "nothing":
                node.hello("p")
            if state == "checking":
                node.workers.is_held = True
                node.auth("p", "u")
            elif state == "closed":
                node.broker.handle("p", [Lost("gone")])
            elif state == "refused":
                node.auth("p", "u", "wrong")
            payload = {
                Kind.HELLO: wire.encode(hello_of(1, protocol=2, mechanisms=("PASSWORD",))),
                Kind.AUTH: wire.encode(wire.Auth("PASSWORD", "u", b"wrong")),
            }.get(kind, b"")
            node.send("p", kind, payload)
            node.workers.is_held = False
            node.workers.run()
            node.broker.handle("p", [Lost("gone")])
            cells += 1
            assert not node.registry.numbers
            assert not node.gate._waiting
            assert not node.engine.state.connections
    told(8, cells=cells)


def auth_of(size):
    """An AUTH that takes so many bytes, with a wrong password."""
    bare = len(wire.encode(wire.Auth("PASSWORD", "u", bytes(300))))
    said = wire.encode(wire.Auth("PASSWORD", "u", b"x" * (300 + size - bare)))
    assert len(said) == size
    return said


NUMBERS = (0, 1 << 31, (1 << 32) - 1)
MUTATIONS = 2000


def test_at_09_an_auth_that_is_too_much_costs_nothing(node, told):
    """Sizes, nesting and lengths that lie, -1 among them; then a valid one with bytes changed, left
    out, repeated and cut. Time is that of the processor, the best of three."""
    begun = b"\x94\xa8PASSWORD"
    payloads = [
        auth_of((16 << 10) + 1),
        auth_of(60 << 10),
        b"\x91" * 100_000,
        b"\x81\xa1a" * 100_000,
        b"\xdd\x00\x0f\x42\x40" + b"\x90" * 1_000_000,
        begun + b"\xdd\x00\x0f\x42\x40" + b"\x90" * 1_000_000,
        *[head + n.to_bytes(4, "big") for n in NUMBERS for head in (b"\xdd", b"\xdf", b"\xc6")],
        *[begun + b"\xdb" + n.to_bytes(4, "big") for n in NUMBERS],
        *[begun + head + b"\xff" for head in (b"", b"\xa1u", b"\xd9", b"\xc4", b"\xd3" * 8)],
        b"\xff",
        b"\xc1",
        b"",
    ]
    numbers = count(1)

    def answered(payload):
        """What is told, the most that it took, and the time of the processor."""
        peer = next(numbers)
        node.hello(peer, peer)
        tracemalloc.reset_peak()
        before, began = tracemalloc.get_traced_memory()[0], time.thread_time()
        got = node.send(peer, Kind.AUTH, payload)
        took_ms = (time.thread_time() - began) * 1000
        most = tracemalloc.get_traced_memory()[1] - before
        assert peer not in node.registry.numbers
        return {type(wire.decode_error(data)) for _, data in got}, most, took_ms

    told_16k, _, _ = answered(auth_of(16 << 10))
    assert told_16k == {hms.LoginRefused}  # so much it may have
    slowest_ms = most_bytes = 0
    for payload in payloads:
        times_ms = [answered(payload)[2] for _ in range(3)]
        tracemalloc.start()
        try:
            kinds, most, _ = answered(payload)
        finally:
            tracemalloc.stop()
        assert kinds == {hms.ProtocolError}, payload[:40]
        slowest_ms, most_bytes = max(slowest_ms, min(times_ms)), max(most_bytes, most)
    good = wire.encode(wire.Auth("PASSWORD", "nobody", b"wrong", b"domain"))
    chance, found = random.Random(9), {}
    for _ in range(MUTATIONS):
        spoiled = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(spoiled) + 1)
            how = chance.randrange(4)
            if how == 0:
                spoiled[at : at + 1] = bytes([chance.randrange(256)])
            elif how == 1:
                del spoiled[at : at + chance.randint(1, 5)]
            elif how == 2:
                spoiled[at:at] = chance.randbytes(chance.randint(1, 9))
            else:
                spoiled[at:at] = spoiled[at : at + 8]
        kinds, _, took_ms = answered(bytes(spoiled))
        slowest_ms = max(slowest_ms, min(took_ms, answered(bytes(spoiled))[2]))
        for kind in kinds:
            found[kind.__name__] = found.get(kind.__name__, 0) + 1
    told(
        9,
        payloads=len(payloads),
        mutations=MUTATIONS,
        growth_max_kib=most_bytes >> 10,
        slowest_ms=round(slowest_ms, 2),
        **{f"told_{name}": number for name, number in found.items()},
    )
    assert {*found} <= {"ProtocolError", "LoginRefused"}
    assert most_bytes < 1 << 20
    assert not node.registry.numbers


NAMES = [
    "a\0b",
    "a\r\nINFO forged",
    "\x1b[31m",
    "\u202egnp.exe",
    "../u",
    "a" * 200,
    "",
    " u",
    "u ",
    "ü",
]


def test_at_10_names_that_are_none_are_refused_and_shown_harmless(node, caplog):
    """A log or a terminal that obeys them is an attack of its own."""
    caplog.set_level(logging.INFO)
    for number, name in enumerate(NAMES, 2):
        assert not is_name(name)
        with pytest.raises(hms.InvalidArgument):
            changes.add_user(node.document, name, node.document.user["u"])
        node.hello(number, number)
        ((_, data),) = node.auth(number, name)
        assert isinstance(wire.decode_error(data), (hms.LoginRefused, hms.ProtocolError))
    node.hello("x", 99)
    ((_, data),) = node.send("x", Kind.AUTH, b"\x94\xa8PASSWORD\xa2\xff\xfe\xc4\x01p\xc4\x00")[:1]
    assert isinstance(wire.decode_error(data), hms.ProtocolError)
    lines = [one.getMessage() for one in caplog.records if one.name.startswith("hms")]
    assert len(lines) >= len(NAMES)
    assert all(line.isprintable() for line in lines)


# guessing


def test_at_12_a_name_that_is_not_there_costs_as_much_as_a_wrong_password(node, monkeypatch, told):
    """Exact: the same work, one hash of the same cost. The times are those of the long form."""
    costs = []

    def verify(stored, _password):
        costs.append(re.sub(r"\$[^$]*\$[^$]*$", "", stored))
        return False

    monkeypatch.setattr("hms.server.logins.login_gate.verify", verify)
    for number, name in enumerate(["u", "nobody", "root"], 2):
        node.hello(number, number)
        node.auth(number, name, "wrong")
    told(12, hashes=len(costs), kinds=len(set(costs)))

    assert len(costs) == 3
    assert len(set(costs)) == 1


@pytest.mark.timeout(3600 if ATTACKS_FULL else 300)
def test_at_12_the_times_of_both_tell_nothing(tmp_path, held, told):
    """An unknown user beside a wrong password, of the security file."""
    with secured_node(tmp_path, held) as running:
        figures = compared(running.address, "nobody", "u")
    told(12, of="file", **figures)

    assert figures["t"] < T_MAX or not ATTACKS_FULL


SPRAYED = 1_000_000 if ATTACKS_FULL else 300_000


@pytest.mark.timeout(300)
def test_at_13_a_flood_of_wrong_logins_runs_no_more_hashes_than_allowed(held, monkeypatch, told):
    """10,000 from one address, 10,000 from 50, and names without end."""
    monkeypatch.setattr("hms.server.logins.login_gate.verify", lambda *_: False)
    verified, lines = {}, []
    monkeypatch.setattr(
        logging.getLogger("hms.security"), "warning", lambda *a, **_: lines.append(a)
    )
    for sources in (1, 50):
        strict = GatedNode(REPLACE(held, security=SecuritySettings()))
        for number in range(2, 10_002):
            strict.callers[number] = Caller("t", f"10.0.0.{number % sources}", key="k")
            strict.hello(number, number)
            strict.auth(number, f"u{number % 997}", "wrong")
        verified[sources] = strict.gate.verified
    limits = LoginLimits(10, 20, 200)
    before, began = resident(SimpleNamespace(pid=os.getpid())), time.thread_time()
    for number in range(SPRAYED):
        limits.take(f"u{number}", f"2001:db8:{number:x}::/64", number)
    took_us = (time.thread_time() - began) / SPRAYED * 1e6
    grown = resident(SimpleNamespace(pid=os.getpid())) - before
    told(
        13,
        hashes_1=verified[1],
        hashes_50=verified[50],
        entries=len(limits),
        lines=len(lines),
        sprayed=SPRAYED,
        grown_mib=grown >> 20,
        us_each=round(took_us, 1),
    )
    assert grown < GROWTH_MAX

    assert verified == {1: 10, 50: 200}
    assert len(limits) <= KEYS_MAX
    assert len(lines) <= 1000


def test_at_14_a_name_that_is_hammered_logs_in_from_where_it_is_known(strict, told):
    """And a key, a process or a token is not counted at all."""
    strict.login("known", "u")
    for number in range(2, 300):
        strict.callers[number] = Caller("t", f"10.{number}.0.1", key="k")
        strict.hello(number, number)
        strict.auth(number, "u", "wrong")
    before = strict.gate.verified
    assert strict.login("again", "u", 900).user == "u"
    told(14, hammered=298, hashes_of_the_victim=strict.gate.verified - before)


# files

HASH = "$argon2id$v=19$m=8192,t=1,p=4$" + "A" * 22 + "$" + "B" * 43
BAD_HASHES = [
    HASH.replace("m=8192", "m=4194304"),
    HASH.replace("m=8192", "m=7"),
    HASH.replace("t=1", "t=11"),
    HASH.replace("p=4", "p=17"),
    HASH.replace("argon2id", "argon2i"),
    HASH.replace("v=19", "v=16"),
    "$1$salt$qJH7.N4xYta3aEG/dfqo/0",
    "$2b$12$" + "a" * 53,
    "secret",
    HASH[:-30],
    HASH + "\n",
    HASH.replace("m=8192", "m=-1"),
]


def test_at_15_a_hash_that_is_too_dear_or_none_is_refused_with_its_line(tmp_path, held):
    """One of 4 GiB would end the node."""
    path = tmp_path / "security.toml"
    for bad in BAD_HASHES:
        save_security(path, held)
        text, good = path.read_text(), held.user["u"].password
        path.write_text(text.replace(good, bad.replace("\n", "\\n"), 1))
        line = next(n for n, one in enumerate(text.splitlines(), 1) if good in one)
        with pytest.raises(hms.SecurityFileError, match=rf"security.toml:{line}: password"):
            load_security(path)


def replaced(was, now):
    def damage(path):
        text = path.read_text()
        assert was in text
        path.write_text(text.replace(was, now, 1))

    return damage


def written(text):
    return lambda path: path.write_bytes(text if isinstance(text, bytes) else text.encode())


def appended(text):
    return lambda path: path.write_text(path.read_text() + text)


def _linked(path):
    path.rename(path.with_name("real"))
    path.symlink_to(path.with_name("real"))


def _folder(path):
    path.unlink()
    path.mkdir()


def _pipe(path):
    path.unlink()
    os.mkfifo(path, 0o600)


DAMAGES = [
    lambda path: path.unlink(),
    written(""),
    written(b"\xff\xfe"),
    written("version = 1\n[user."),
    written(b"\0" * 4096),
    written("version = 1\n" + "# x\n" * (2 << 20)),
    lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    lambda path: path.chmod(0o644),
    lambda path: path.chmod(0o660),
    lambda path: os.chown(path, 65_000, 65_000),
    _linked,
    _folder,
    _pipe,
    replaced("version = 5", "version = 4"),
    replaced("version = 5", "version = 0"),
    replaced("version = 5", 'version = "5"'),
    replaced("version = 5\n", ""),
    replaced("[role.", "[rolle."),
    appended('\n[role.a]\nroles = ["b"]\n[role.b]\nroles = ["a"]\n'),
    appended("\n[role.big]\npermissions = [" + '"view queue:*", ' * 100_000 + "]\n"),
    appended('\n[role.x]\npermissions = ["fly queue:*"]\n'),
    appended('\n[role.x]\npermissions = ["consume quue:*"]\n'),
    appended('\n[role.x]\npermissions = ["consume queue:*"]\n[role.x]\n'),
    appended('\n[user.x]\nroles = ["nobody"]\n'),
    appended('\n[user.x]\nkeys = ["short"]\n'),
    appended('\n[user.x]\naddresses = ["10.0.0.0/40"]\n'),
    appended('\n[user."a b"]\nenabled = true\n'),
    appended("\n[user.x]\ngeneration = 0\n"),
    appended('\n[token.t]\nuser = "gone"\nsha256 = "00"\nexpires_at = 2030-01-01T00:00:00Z\n'),
    appended('\n[key.k]\npublic = "x"\n'),
]


class FileNode(MemoryNode):
    """A broker in memory whose users are those of a file."""

    def __init__(self, path):
        self.path = path
        super().__init__(SETTINGS, entrance=self._entrance)

    def _entrance(self, engine, registry, change):
        own = SimpleNamespace(name="memory")
        self.securing = Securing(self.path, {}, own, engine, Monitor(), lambda _: LOCAL, lambda: 1)
        return self.securing.entrance(registry, change)


def test_at_16_thirty_damaged_files_open_nothing(tmp_path, held, caplog, told):
    """A boot is refused; a running node keeps what held, and says so."""
    for number, damage in enumerate(DAMAGES):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = folder / "security.toml"
        save_security(path, REPLACE(held, version=5))
        node = FileNode(path)
        damage(path)
        caplog.clear()
        node.securing.look()
        assert node.securing.gate.identities.document == REPLACE(held, version=5)
        if number != 13:  # an older version is wrong only beside a newer one
            with pytest.raises(hms.SecurityFileError):
                load_security(path)
        assert any(r.levelno == logging.ERROR for r in caplog.records), number
        assert str(path) in node.securing.rejected(), number
        node.securing.close()
    told(16, files=len(DAMAGES))
    assert len(DAMAGES) == 30


def test_at_16_a_fault_is_told_until_the_file_is_whole_again(tmp_path, held):
    """An alert, not a line of the log alone."""
    path = tmp_path / "security.toml"
    save_security(path, held)
    node = FileNode(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    node.securing.look()
    node.securing.look()
    assert "cut off" in node.securing.rejected()
    path.write_bytes(whole)
    node.securing.look()
    assert node.securing.rejected() == ""
    node.securing.close()


def test_at_16_half_of_a_file_that_somebody_writes_by_hand_lets_nobody_in(tmp_path, held):
    """It has no mark of its end, and half of it may be whole TOML that does not say yet who is
    disabled. So it is taken over when it has stopped to change."""
    path = tmp_path / "security.toml"
    save_security(path, held)
    users = {**held.user, "u": REPLACE(held.user["u"], enabled=False)}
    text = security_text(REPLACE(held, user=users)).split("\n", 2)[2].removesuffix("# end\n")
    head, *sections = text.split("\n[")
    ended = "\n[".join([head, *sorted(sections)])  # roles stand before users
    path.write_text(ended)
    node = FileNode(path)
    assert not node.securing.gate.identities.document.user["u"].enabled
    lines = ended.splitlines(keepends=True)
    cuts = [at for at in range(len(lines)) if "enabled = false" in lines[at]]
    for cut in (*cuts, len(lines)):
        path.write_text("".join(lines[:cut]) + "# a change\n")
        node.securing.look()
        document = node.securing.gate.identities.document
        assert "u" not in document.user or not document.user["u"].enabled
    node.securing.look()
    assert node.securing.gate.identities.document.user["u"].enabled is False
    node.securing.close()


# names that are known


def test_at_17_a_resume_token_holds_for_nothing_but_what_it_was_given_for(told):
    """Each field by itself, and the keys of another node."""
    right = {"uid": 7, "caller": Caller("l", "10.0.0.1", key="k"), "now_ms": 1000}
    tokens = ResumeTokens([b"k" * 32], 60)
    token, _ = tokens.issue("u", 1, "PASSWORD", right["uid"], right["caller"], right["now_ms"])
    assert tokens.check(token, **right) is not None
    wrongs = [
        {"uid": 8},
        {"caller": Caller("other", "10.0.0.1", key="k")},
        {"caller": Caller("l", "10.0.0.1", key="other")},
        {"caller": Caller("l", "10.0.0.1")},
        {"caller": Caller("l", "", 1000, 1000, "k")},
        {"now_ms": 999},
        {"now_ms": 61_000},
    ]
    for wrong in wrongs:
        assert tokens.check(token, **(right | wrong)) is None
    flips = [
        token[:i] + bytes([token[i] ^ 1 << b]) + token[i + 1 :]
        for i in range(len(token))
        for b in range(8)
    ]
    for flipped in [*flips, token[:-1], token + b"\0", token * 2]:
        assert tokens.check(flipped, **right) is None
    assert ResumeTokens([b"x" * 32], 60).check(token, **right) is None
    assert ResumeTokens([b"n" * 32, b"k" * 32], 60).check(token, **right) is not None
    told(17, tokens_tried=len(flips) + len(wrongs) + 4)


# messages


@pytest.mark.parametrize(
    ("pattern", "scheme"),
    [
        ("#", ""),
        ("news/#", ""),
        ("news/+", ""),
        ("+/+", ""),
        ("n*", "CHARACTER"),
        ("*a", "CHARACTER"),
    ],
)
def test_at_28_a_wildcard_gets_what_is_granted_and_nothing_else(held, pattern, scheme):
    """Whatever the pattern, the scheme and the levels."""
    topics = ["a", "b", "a/x", "aa", "A", "a/", "/a", "x/a"]
    held = document(u=["publish topic:#"], v=["subscribe topic:news/a"])
    node = GatedNode(held)
    for peer, user, number in (("p", "u", 1), ("q", "v", 2)):
        node.login(peer, user, number)
        node.ask(peer, wire.OpenSession(1))
    opened = node.ask("q", wire.OpenConsumer(1, 1, "topic", pattern, 100, scheme=scheme))
    assert not isinstance(opened, hms.HmsError)
    delivered = []
    for handle, topic in enumerate(topics, 1):
        answer = node.ask("p", wire.OpenProducer(handle, 1, "topic", "news", topic=topic))
        if isinstance(answer, hms.HmsError):
            continue  # no topic is called so
        node.send("p", *send(handle, 1, 1, pack(1)))
        if any(e.kind is Kind.DELIVER for e, _ in node.outlet.take("q")):
            delivered.append(topic)

    assert {*delivered} <= {"a", "a/x", "a/"}
    assert "a" in delivered


def test_at_29_a_subscription_puts_nothing_into_a_queue_that_its_owner_lost(held):
    """It was made when its owner might; it went on for good."""
    held = document(
        u=["publish topic:news"],
        v=["subscribe topic:news", "subscribe-durable topic:news", "produce queue:orders"],
        w=["configure topic:news", "subscribe topic:news", "produce queue:ledger"],
    )
    node = GatedNode(held)
    for number, user in enumerate("uvw", 1):
        node.login(user, user, number)
        node.ask(user, wire.OpenSession(1))
    node.ask("u", wire.OpenProducer(1, 1, "topic", "news"))
    wanted = wire.OpenConsumer(1, 1, "topic", "news", 0, durable="d", queue="orders")
    assert not isinstance(node.ask("v", wanted), hms.HmsError)
    made = {"name": "n", "topic": "news", "queue": "ledger"}
    assert not isinstance(node.ask("w", wire.Administer("subscription.create", made)), hms.HmsError)
    lines = [node.engine.state.queues[name].line for name in ("orders", "ledger")]
    node.send("u", *send(1, 1, 1, pack(1)))
    assert [line.waiting_count for line in lines] == [1, 1]

    held = without(held, "v", "produce queue:orders")
    node.change(without(held, "w", "produce queue:ledger"))
    node.send("u", *send(1, 2, 1, pack(1)))

    assert [line.waiting_count for line in lines] == [1, 1]
    denied = REPLACE(wanted, consumer=9, durable="e")
    assert isinstance(node.ask("v", denied), hms.NotAuthorized)


SEEDS = 10_000 if ATTACKS_FULL else 60


def called(node, peer, correlation, service):
    head = wire.CallHead(service, 0)
    return node.send(peer, Kind.CALL, wire.encode_with_body(head, b""), correlation)


def invoked(node, peer):
    ((envelope, data),) = node.outlet.take(peer)
    assert envelope.kind is Kind.INVOKE
    return wire.decode_with_body(data, wire.InvokeHead)[0]


def test_at_30_a_reply_reaches_its_caller_alone_and_a_service_knows_who_that_is(held):
    """Whatever another server says of the call, and wherever it is forwarded; what the caller says
    of itself counts for nothing."""
    call, advertise = "call service:*", "advertise service:*"
    node = GatedNode(document(u=[call], v=[call], s=[advertise], t=[advertise]))
    for number, user in enumerate("uvst", 1):
        node.login(user, user, number, client_id="admin", client_name="admin")
    for server, service in (("s", "PAY"), ("t", "RISK")):
        assert not isinstance(node.ask(server, wire.Advertise(service)), hms.HmsError)
    assert called(node, "u", 7, "PAY") == []
    assert called(node, "v", 7, "RISK") == []
    pay, risk = invoked(node, "s"), invoked(node, "t")
    assert (pay.user, risk.user) == ("u", "v")

    def result(server, call, data, **more):
        head = wire.ResultHead(call, 2, **more)
        return node.send(server, Kind.RESULT, wire.encode_with_body(head, data))

    assert result("t", pay.call, b"stolen") == []
    said = wire.TalkHead(pay.call, is_from_server=True)
    assert node.send("t", Kind.TALK, wire.encode_with_body(said, b"stolen")) == []
    assert node.outlet.take("u") == node.outlet.take("v") == []
    result("s", pay.call, b"on", forward="RISK")
    ((_, data),) = result("t", risk.call, b"for v")
    on = wire.decode_with_body(data, wire.InvokeHead)[0]
    assert (on.service, on.user) == ("RISK", "u")
    result("t", on.call, b"for u")
    for peer in "uv":
        ((envelope, data),) = node.outlet.take(peer)
        _, body = wire.decode_with_body(data, wire.ResultHead)
        assert (envelope.kind, envelope.correlation, body) == (
            Kind.ANSWER, 7, b"for " + peer.encode()
        )  # fmt: skip


def test_at_30_a_server_of_the_node_calls_as_the_node_and_as_no_user(held):
    """No user can have that name: a service that calls another one is not taken for its caller."""
    node = GatedNode(document(s=["advertise service:*"]))
    node.login("s", "s", 1)
    node.ask("s", wire.Advertise("RISK"))
    node.registry.is_own = lambda name, _uid: name == "pay:1"
    node.hello("own", 2, client_name="pay:1", is_server=True)
    assert called(node, "own", 1, "RISK") == []
    user = invoked(node, "s").user
    assert user == NODE_USER
    assert not is_name(user)


def test_at_30_an_answer_to_a_reply_to_is_sent_by_the_rights_of_who_answers(held):
    """A message can name any queue: to name it grants nothing, and the refusal is audited."""
    held = document(u=["produce queue:orders"], s=["consume queue:orders", "produce queue:open"])
    node = GatedNode(held)
    node.login("s", "s", 1)
    node.ask("s", wire.OpenSession(1))
    refused = node.ask("s", wire.OpenProducer(1, 1, "queue", "payments"))
    assert isinstance(refused, hms.NotAuthorized)
    assert refused.fields["resource"] == "queue:payments"
    said = [data for kind, _, data in node.store.records if kind == RecordType.AUDIT]
    (record,) = [one for one in map(decode_audit, said) if one.action == "produce"]
    assert (record.user, record.resource) == ("s", "queue:payments")


@pytest.mark.timeout(3600 if ATTACKS_FULL else 300)
def test_at_35_a_revocation_beside_sends_has_the_order_of_the_log(held, told):
    """What was confirmed is there, what was refused is not, whatever the order was."""
    revoked = without(held, "u", "produce queue:orders")
    sent = 0
    for seed in range(SEEDS):
        chance, node = random.Random(seed), GatedNode(held)
        node.login("p", "u", 1)
        node.ask("p", wire.OpenSession(1))
        node.ask("p", wire.OpenProducer(1, 1, "queue", "orders"))
        may, confirmed, sequence = True, 0, count(1)
        number = next(sequence)
        for step in range(12):
            if chance.random() < 0.4:
                may = not may
                node.change(REPLACE(held if may else revoked, version=step + 2))
                continue
            ((envelope, _),) = node.send("p", *send(1, number, 1, pack(1)))
            assert (envelope.kind is Kind.CONFIRM) is may, seed
            if may:
                confirmed += 1
                number = next(sequence)
            sent += 1
        assert node.engine.state.queues["orders"].line.waiting_count == confirmed, seed
    told(35, seeds=SEEDS, sends=sent, differences=0)


def test_at_39_a_flood_of_denials_takes_bounded_disk(node, told):
    """Equal ones are two records a minute; different ones take less than 1 MiB of any minute, with
    the counts behind them, and none of them is uncounted."""
    node.login("p", "u", 1)
    node.ask("p", wire.OpenSession(1))

    def audited():
        records = [p for kind, _, p in node.store.records if kind == RecordType.AUDIT]
        return [decode_audit(one) for one in records], sum(map(len, records))

    def denied(name, count=1):
        for _ in range(count):
            head = wire.encode(wire.OpenProducer(9, 1, "queue", name))
            node.send("p", Kind.REQUEST, head)

    denied("ledger", 5000)
    assert len(audited()[0]) == 1
    most, number = 0, 0
    for _ in range(3):  # minutes
        before = audited()[1]
        for _ in range(4000):
            number += 1
            denied(f"{'q' * (number % 150)}{number}", 2)
        node.now_ms += 60_000
        node.broker.command(lambda fx, now_ms: node.auditing.flush(now_ms, fx))
        node.step()
        most = max(most, audited()[1] - before)
    entries, size = audited()
    told(39, denials=29_000, records=len(entries), bytes=size, bytes_a_minute_max=most)

    assert sum(one.count for one in entries) == 29_000
    assert most < 1 << 20


def test_at_39_a_hundred_thousand_denials_in_a_second_are_counted_to_the_last(node, told):
    """What the bar asks of the audit. Nobody brings as many to it: a user has DENIALS_PER_S, and a
    sender that goes on is cut at the node's own limits (test_attacks_on_the_machine.py)."""
    node.login("p", "u", 1)
    faults = [
        hms.NotAuthorized(user="u", action="produce", resource=f"queue:{'q' * 200}{number}")
        for number in range(10_000)
    ]
    began = time.thread_time()

    def flood(fx, now_ms):
        for number in range(100_000):
            node.gate.denied(1, faults[number % len(faults)], now_ms + number // 100, fx)

    node.broker.command(flood)
    took_us = (time.thread_time() - began) / 100_000 * 1e6
    node.now_ms += 61_000
    node.broker.command(lambda fx, now_ms: node.auditing.flush(now_ms, fx))
    node.step()

    records = [p for kind, _, p in node.store.records if kind == RecordType.AUDIT]
    size = sum(map(len, records))
    told(39, denials=100_000, keys=10_000, records=len(records), bytes=size, us=round(took_us, 1))
    assert sum(decode_audit(one).count for one in records) == 100_000
    assert size < 1 << 20


def test_at_46_the_last_administrator_stays(held):
    """Whichever way it would go."""
    held = changes.create_role(held, "boss")
    held = changes.grant(held, "boss", "secure user:*")
    held = changes.alter_user(held, "u", roles=("boss",))
    held = changes.alter_user(held, "root", roles=("admin",))
    ways = [
        lambda d: changes.delete_user(d, "u"),
        lambda d: changes.alter_user(d, "u", enabled=False),
        lambda d: changes.alter_user(d, "u", roles=()),
        lambda d: changes.revoke(d, "boss", "secure user:*"),
        lambda d: changes.delete_role(d, "boss"),
    ]
    for way in ways:
        with pytest.raises(hms.InvalidArgument):
            way(held)


def test_at_40_nobody_looks_into_a_secured_node(tmp_path, held):
    """No core file after SIGABRT, and no debugger of another process of the same user."""
    with secured_node(tmp_path, held) as running:
        limits = Path(f"/proc/{running.pid}/limits").read_text()
        assert re.search(r"Max core file size\s+0\s+0", limits)
        os.kill(running.pid, 6)
        running.wait()
        assert not list(tmp_path.rglob("core*"))


def test_at_48_a_libzmq_that_can_be_broken_is_refused(monkeypatch):
    """Before anything listens."""
    monkeypatch.setattr(zmq, "zmq_version_info", lambda: (4, 3, 3))
    with pytest.raises(hms.NotSupported, match=r"4\.3\.4"):
        check_zeromq()
