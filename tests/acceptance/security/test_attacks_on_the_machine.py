"""Attacks of the specification's table on what a node has of its machine: memory, descriptors,
threads, disk and clock. Each with the figures of its bar.

The attacks in the size of their rows:

    HMS_ATTACKS=full python -m pytest tests/acceptance/security/test_attacks_on_the_machine.py
"""

import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec
import pytest
import zmq
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.server.logins import document_changes as changes
from hms.server.logins.denial_pace import DENIALS_AT_ONCE, DENIALS_PER_S
from hms.server.logins.security_document import SecuritySettings, UserEntry
from hms.wire import frames
from hms.wire import structures as wire
from hms.wire.frames import Kind, frame
from tests.acceptance.security.test_attacks import resident, sampled
from tests.acceptance.security.test_encrypted import Place
from tests.acceptance.test_clock_steps import WallClock
from tests.support import zmtp
from tests.support.hello import hello_of
from tests.support.login_times import ATTACKS_FULL
from tests.support.secured import PASSWORD, document, secured_node
from tests.support.waiting import drained, wait_until

REPLACE = msgspec.structs.replace
MIB = 1 << 20
ROOT = Path(__file__).parents[3]
DAY_S = 86_400


@pytest.fixture
def told(record_property):
    """Tells the figures of a row."""

    def tell(row, **figures):
        record_property("figures", {"test": f"AT-{row:02d}", **figures})

    return tell


@contextmanager
def place_of(folder, **own):
    """A real node with encrypted listeners."""
    made = Place(folder)
    made.config = {**made.config, "own": own}
    with secured_node(folder, made.held, made.config) as made.node:
        yield made


def alerts(node):
    done = CliRunner().invoke(main, ["alert", "list", "--json", "--config", str(node.config_file)])
    return {row["alert"] for row in json.loads(done.stdout)["active"]}


class Honest:
    """A client that sends and receives, one message at a time, in a thread of its own."""

    def __init__(self, connection):
        self._connection, self.times_ms, self._stop = connection, [], threading.Event()
        self.confirmed, self.came, self.fault = [], [], None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        try:
            with self._connection.session() as session:
                out = session.producer(hms.Queue("orders"))
                inn = session.consumer(hms.Queue("orders"))
                while not self._stop.is_set():
                    began = time.perf_counter()
                    body = b"%d" % len(self.confirmed)
                    out.send(body)
                    self.confirmed.append(body)
                    self.came.append(inn.receive(timeout_s=60).body)
                    self.times_ms.append((time.perf_counter() - began) * 1000)
        except Exception as fault:  # noqa: BLE001 - told by who waits
            self.fault = fault

    def goes_on(self, count=50):
        """So many more have come."""
        target = len(self.times_ms) + count
        wait_until(lambda: len(self.times_ms) >= target or self.fault, timeout_s=200)
        assert self.fault is None, self.fault

    def end(self):
        self._stop.set()
        self._thread.join(60)
        assert self.fault is None, self.fault
        assert self.came == self.confirmed


def p99_ms(times_ms):
    return round(statistics.quantiles(times_ms, n=100)[98], 2) if len(times_ms) > 1 else 0


# memory

CROWD = 200
HELD = 8 * MIB
"""Of each, in a message that does not end: half of what one may have."""
CEILING = 512 * MIB


def test_at_02_two_hundred_unfinished_messages_stay_below_the_ceiling(told):
    """1.6 GiB together, each of them less than one may have: those for whom most is held are
    closed, the operator is told, and the honest client beside them loses nothing."""
    own = {"max_message_bytes": "16 MiB", "max_memory_bytes": "256 MiB"}
    config = {"hms": {"queue": {"orders": {}}}, "node": {"NODE1": own}}
    piece = zmtp.part(bytes(MIB), is_last=False)
    with hms.testing.node(config=config) as node, ExitStack() as stack:
        honest = Honest(stack.enter_context(hms.connect(node.address)))
        honest.goes_on(200)
        quiet, first = p99_ms(honest.times_ms), len(honest.times_ms)
        crowd = [stack.enter_context(raw(node, 1000 + number)) for number in range(CROWD)]
        before, most = resident(node), stack.enter_context(sampled(node))
        for wild in crowd:  # 200 MiB a second, so that a busy machine may look late
            with suppress(OSError):
                for _ in range(HELD // MIB):
                    wild.sendall(piece)
                    time.sleep(0.005)
        wait_until(lambda: "memory_pressure" in alerts(node))
        began = time.perf_counter()
        honest.goes_on(1)
        back_s = time.perf_counter() - began
        honest.goes_on()
        honest.end()
        closed = node.log.count("bytes of one connection")
    told(
        2,
        connections=CROWD,
        offered_mib=CROWD * HELD // MIB,
        closed=closed,
        peak_mib=(before + most[0]) // MIB,
        back_s=round(back_s, 2),
        confirmed=len(honest.confirmed),
        p99_quiet_ms=quiet,
        p99_ms=p99_ms(honest.times_ms[first:]),
    )
    assert before + most[0] < CEILING


def raw(node, number):
    """A connection that has said HELLO, by hand."""
    made = zmtp.connect(node.address)
    envelope, body = frame(Kind.HELLO, wire.encode(hello_of(number)), 1)
    made.sendall(zmtp.part(envelope, is_last=False) + zmtp.part(body, is_last=True))
    made.recv(1)
    return made


# another user of the machine

STRANGER = """
import json, os, socket, sys

folder, port, length = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
found = {}


def tried(name, attempt):
    try:
        attempt()
        found[name] = "done"
    except OSError as fault:
        found[name] = type(fault).__name__


def bound(path):
    socket.socket(socket.AF_UNIX).bind(path)


tried("listen at the address", lambda: bound(folder + "/s"))
tried("listen beside it", lambda: bound(folder + "/t"))
tried("move it", lambda: os.rename(folder + "/s", folder + "/t"))
tried("remove it", lambda: os.unlink(folder + "/s"))
tried("connect", lambda: socket.socket(socket.AF_UNIX).connect(folder + "/s"))
tried("read the policy", lambda: open(folder + "/security.toml").read())
tried("read a key", lambda: open(folder + "/server.key").read())
print(json.dumps(found), flush=True)
if port:
    listening = socket.create_server(("127.0.0.1", port))
    print("listening", flush=True)
    heard = b""
    while True:
        caller, _ = listening.accept()
        caller.settimeout(60)
        try:
            caller.sendall(bytes.fromhex(sys.argv[4]))
            while len(heard) < 1 << 20 and (more := caller.recv(65536)):
                heard += more
                if len(heard) >= length:
                    break
        except OSError:
            pass
        caller.close()
        print(heard.hex(), flush=True)
"""
"""All that it does it does as a user without a group, who is nobody here."""
AS_SERVER = zmtp.HANDSHAKE[:12] + b"CURVE" + bytes(15) + b"\1" + bytes(31)
HELLO_BYTES = 64 + 202
"""A greeting, and the HELLO of CURVE."""


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can become another user")
def test_at_05_another_user_of_the_machine_gets_neither_the_socket_nor_a_password(told):
    """While the node works and while it is down; and at its port, when it is down."""
    with tempfile.TemporaryDirectory(prefix="hms-") as folder, ExitStack() as stack:
        Path(folder).chmod(0o755)  # may be looked into: its modes are what is tried
        place = stack.enter_context(place_of(Path(folder)))
        port = int(place.addresses["any"].rpartition(":")[2])
        command = [sys.executable, "-c", STRANGER, folder]
        done = subprocess.run([*command, "0", "0"], check=True, capture_output=True, text=True)
        works = json.loads(done.stdout)
        place.node.kill()
        stranger = stack.enter_context(
            subprocess.Popen(
                [*command, str(port), str(HELLO_BYTES), AS_SERVER.hex()],
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(stranger.kill)
        is_down = json.loads(stranger.stdout.readline())
        assert stranger.stdout.readline() == "listening\n"
        login = {"user": "billing", "password": PASSWORD, "key_file": "user.key"}
        with pytest.raises(hms.ServerKeyMismatch):
            place.connect("any", reconnect=False, **login)
        heard = bytes.fromhex(stranger.stdout.readline())
    told(5, tried=len(works) + len(is_down), heard_bytes=len(heard))
    for tried in (works, is_down):
        assert tried.pop("listen at the address") != "done"  # the name is taken, whoever asks
        assert set(tried.values()) == {"PermissionError"}, tried
    assert len(heard) >= HELLO_BYTES
    assert PASSWORD.encode() not in heard
    assert b"billing" not in heard


# guessing

WRONG = 10_000 if ATTACKS_FULL else 500


@pytest.mark.timeout(600 if ATTACKS_FULL else 300)
@pytest.mark.parametrize("addresses", [1, 50])
def test_at_13_beside_a_flood_of_wrong_logins_a_node_serves_the_others(tmp_path, told, addresses):
    """With the limits that are the default; and a user logs in by password meanwhile. The flood has
    few descriptors until it asks for more: a shell gives 1,024, it takes up to 1,000 and some."""
    place = Place(tmp_path)
    cheap = {"password_passes": 1, "password_memory_kib": 8 << 10}  # as their hashes are
    strict = SecuritySettings(fail_delay_ms=20, **cheap)
    users = {**place.held.user, "victim": UserEntry(password=place.held.user["other"].password)}
    held = REPLACE(place.held, security=strict, user=users)
    with secured_node(tmp_path, held, place.config) as place.node, ExitStack() as stack:
        node = place.node
        honest = Honest(stack.enter_context(hms.connect(node.address)))
        honest.goes_on(500)
        quiet, first = p99_ms(honest.times_ms), len(honest.times_ms)
        size, most = resident(node), stack.enter_context(sampled(node))
        command = ["prlimit", "--nofile=256:", sys.executable, "-m", "bench.secure_logins"]
        command += [place.addresses["any"], place.server_key, str(WRONG)]
        command += ["--addresses", str(addresses)]
        options = {"stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
        flood = stack.enter_context(subprocess.Popen(command, **options))
        stack.callback(flood.kill)
        flooded_at = time.monotonic()
        assert flood.stdout.readline() == "begun\n"
        for _ in range(WRONG // 500):
            honest.goes_on(500)
        began = time.perf_counter()
        place.connect("any", user="billing", password=PASSWORD).close()
        login_s = time.perf_counter() - began
        flood.terminate()
        attempts = int(flood.stdout.read())
        minutes = (time.monotonic() - flooded_at) / 60
        beside = honest.times_ms[first:]
        honest.end()
        wait_until(lambda: resident(node) - size < 64 * MIB, timeout_s=30)
        hashes = node.log.count("the password is wrong")
    told(
        13,
        addresses=addresses,
        attempts=attempts,
        hashes=hashes,
        login_s=round(login_s, 2),
        grown_mib=most[0] // MIB,
        p99_quiet_ms=quiet,
        p99_ms=p99_ms(beside),
        p50_ms=round(statistics.median(beside), 2),
    )
    most_hashes = min(strict.failures_per_user, addresses * strict.failures_per_address)
    assert 0 < hashes <= (2 + minutes) * most_hashes  # as many again in each minute
    assert most[0] < 64 * MIB


# descriptors and threads


def test_at_06_thousands_of_half_handshakes_are_freed_and_the_honest_client_is_served(
    tmp_path, told
):
    """Silent, slow, half greeted, of other versions of ZMTP, and garbage, 500 at a time."""
    curve = zmtp.HANDSHAKE[:12] + b"CURVE" + bytes(15) + bytes(32)
    hello = b"\x04\xc8\x05HELLO" + os.urandom(194)
    zmtp1, zmtp2, zmtp31 = b"\x01\x00", b"\xff" + bytes(8) + b"\x7f\x01\x05", zmtp.HANDSHAKE
    saids = [b"", curve[:1], curve, curve + hello, os.urandom(300), zmtp1, zmtp2, zmtp31]
    waves, wave = (10, 500) if ATTACKS_FULL else (2, 250)
    with place_of(tmp_path) as place:
        node = place.node
        honest = Honest(place.connect(key_file="user.key"))
        honest.goes_on(300)
        quiet, first = p99_ms(honest.times_ms), len(honest.times_ms)
        before, size = descriptors(node), resident(node)
        slowest_s = grown = 0
        for _ in range(waves):
            with ExitStack() as stack:
                for nth in range(wave):
                    where = ("known", "any")[nth % 2]
                    host, _, port = place.addresses[where].removeprefix("tcp://").rpartition(":")
                    one = stack.enter_context(socket.create_connection((host, int(port)), 30))
                    with suppress(OSError):
                        one.sendall(saids[nth % len(saids)])
                    if nth % len(saids) == 1:  # one that goes on, a byte at a time
                        with suppress(OSError):
                            one.sendall(curve[1:2])
                began = time.perf_counter()
                wait_until(lambda: descriptors(node) <= before + 4, timeout_s=60)
                slowest_s = max(slowest_s, time.perf_counter() - began)
                grown = max(grown, resident(node) - size)
        honest.goes_on()
        honest.end()
        wait_until(lambda: resident(node) - size < 64 * MIB, timeout_s=30)
    told(
        6,
        strangers=waves * wave,
        freed_within_s=round(slowest_s, 2),
        grown_mib=grown // MIB,
        p99_quiet_ms=quiet,
        p99_ms=p99_ms(honest.times_ms[first:]),
    )
    assert grown < 64 * MIB


RESERVED = 32
"""What the guard of accept() keeps at least."""


def descriptors(node):
    return len(list(Path(f"/proc/{node.pid}/fd").iterdir()))


def limited(node, what, value):
    """The limit of the node's process from now on; what it was."""
    hard = resource.prlimit(node.pid, what)[1]
    return resource.prlimit(node.pid, what, (value, hard))


@pytest.mark.parametrize(
    "what", ["descriptors", "descriptors, ipc", "no descriptors", "no descriptors, ipc", "memory"]
)
def test_at_41_a_node_without_room_lets_nobody_in_who_may_not_and_keeps_what_it_confirmed(
    tmp_path, told, what
):
    """The limit is set on the running node, while clients come and send; then it is lifted. Without
    a descriptor it goes on, over TCP and at a local socket; without memory it may stop, and says
    why. Then the store boots with all that was confirmed."""
    with place_of(tmp_path, max_message_bytes="1 MiB") as place:
        node = place.node
        status = Path(f"/proc/{node.pid}/status").read_text()
        (size,) = [int(n.split()[1]) << 10 for n in status.splitlines() if n.startswith("VmSize")]
        kept = 3 if what.startswith("no") else 3 + RESERVED
        kind, least = resource.RLIMIT_NOFILE, descriptors(node) + kept
        if what == "memory":
            kind, least = resource.RLIMIT_AS, size + 48 * MIB
        where = (node.address, {}) if "ipc" in what else (
            place.addresses["any"], {"server_keys": [place.server_key]}
        )  # fmt: skip
        options = {"connect_timeout_s": 3, "request_timeout_s": 5, "reconnect": False}
        billing = {"user": "billing", "password": PASSWORD}
        known = {} if "ipc" in what else {"key_file": str(tmp_path / "user.key")}
        confirmed, refusals, let_in = [], [], 0
        was = limited(node, kind, least)
        with ExitStack() as stack:
            for number in range(12):
                login = [{**billing, "password": "wrong"}, billing, known][number % 3]
                given = {**options, **login, **where[1]}
                try:
                    made = stack.enter_context(hms.connect(where[0], **given))
                    let_in += 1
                    assert number % 3
                    out = made.session().producer(hms.Queue("orders"))
                    for _ in range(20):
                        body = b"%d " % number + os.urandom(512 << 10)
                        out.send(body)
                        confirmed.append(body[:20])
                except (hms.HmsError, OSError) as fault:
                    refusals.append(type(fault).__name__)
        has_gone_on = node.is_running
        if has_gone_on:
            with suppress(ProcessLookupError, hms.HmsError):  # it may have ended just now
                resource.prlimit(node.pid, kind, was)
            wait_until(lambda: not node.is_running or comes_in(node), timeout_s=60)
            has_gone_on = node.is_running and "the node stops" not in node.log
        if not has_gone_on:
            node.wait()
            assert "the node stops" in node.log
            node.boot()
        with hms.connect(node.address) as own, own.session() as session:
            inn = session.consumer(hms.Queue("orders"))
            found = [one.body[:20] for one in drained(own, inn)]
        done = CliRunner().invoke(main, ["audit", "verify", "--config", str(node.config_file)])
    told(
        41,
        of=what.replace(", ", "_"),
        let_in=let_in,
        refused=len(refusals),
        kinds=",".join(sorted(set(refusals))),
        confirmed=len(confirmed),
        found=len(found),
        went_on=has_gone_on,
    )
    assert has_gone_on or what == "memory"
    assert {*confirmed} <= {*found}
    assert done.exit_code == 0, done.output
    assert refusals


def comes_in(node):
    with suppress(hms.HmsError), hms.connect(node.address, connect_timeout_s=5):
        return True
    return False


# the disk

DENIED_FOR_S = 30 if ATTACKS_FULL else 3
DENIED = """
import json, os, sys, time
import zmq
from hms.wire import frames
from hms.wire import structures as wire
from hms.wire.frames import Kind, frame
from tests.support.hello import hello_of

address, password, window, number = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
context, offered, answered, logins = zmq.Context(), 0, 0, 0
is_told, over_at = False, time.monotonic() + 60  # to its first denial
left = []  # libzmq ends a process that closes one of which half a message is sent


def kind_of(parts):
    return frames.decode_envelope(parts, 1 << 20).kind


while time.monotonic() < over_at:
    wild = context.socket(zmq.DEALER)
    wild.linger, wild.sndtimeo, wild.rcvtimeo = 0, 1000, 5000
    wild.reconnect_ivl = -1
    wild.connect(address)
    number += 1
    hello = hello_of(number, protocol=2, mechanisms=("PASSWORD",))
    try:
        wild.send_multipart(frame(Kind.HELLO, wire.encode(hello), 1))
        wild.recv_multipart()
        auth = wire.Auth("PASSWORD", "u", password.encode())
        wild.send_multipart(frame(Kind.AUTH, wire.encode(auth), 2))
        is_in = kind_of(wild.recv_multipart()) is Kind.WELCOME
        logins += is_in
        wild.send_multipart(frame(Kind.REQUEST, wire.encode(wire.OpenSession(1)), 3))
        open_count = 1
        while is_in and time.monotonic() < over_at:
            if open_count < window:
                name = "q" * 100 + str(offered)
                asked = wire.encode(wire.OpenProducer(9, 1, "queue", name))
                wild.send_multipart(frame(Kind.REQUEST, asked, 4))
                offered, open_count = offered + 1, open_count + 1
            while wild.poll(0 if open_count < window else 100):
                parts = wild.recv_multipart()
                kind, open_count = kind_of(parts), open_count - 1
                if kind is not Kind.ERROR:
                    continue
                if type(wire.decode_error(parts[1])).__name__ == "NotAuthorized":
                    answered += 1
                else:
                    is_in = False
                    break
            if answered and not is_told:
                is_told, over_at = True, time.monotonic() + float(sys.argv[5])
                print("begun", flush=True)
    except zmq.Again:
        pass
    left.append(wild)
print(json.dumps({"offered": offered, "answered": answered, "logins": logins}), flush=True)
os._exit(0)
"""
"""Commands that are refused, as fast as a process can send them: at most so many that are not
answered yet. Where it is given up it comes again."""


@contextmanager
def denied_beside(node, window, seconds):
    """From its first refusal on; at the end what it has said."""
    command = [sys.executable, "-c", DENIED, node.address, PASSWORD, str(window), "1000"]
    options = {"stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    with subprocess.Popen([*command, str(seconds)], **options) as process:
        try:
            assert process.stdout.readline() == "begun\n"
            said = {}
            yield said
            said |= json.loads(process.stdout.read())
        finally:
            process.kill()


@pytest.mark.parametrize("window", [2_000, 1 << 30], ids=["in turn", "without an end"])
def test_at_39_a_flood_of_denials_is_slowed_and_takes_little_of_the_log(tmp_path, told, window):
    """Each time for another long name; then once more, with an honest client at work beside it.
    A user has so many denials a second, in all connections together, and waits for the next."""
    with secured_node(tmp_path, document(u=["consume queue:x"])) as node, ExitStack() as stack:
        own = stack.enter_context(hms.connect(node.address))

        def grown():
            return own.administer("status", {})["appended_bytes"]

        before = grown()
        with denied_beside(node, window, DENIED_FOR_S) as alone:
            pass
        log_bytes = grown() - before
        honest = Honest(stack.enter_context(hms.connect(node.address)))
        honest.goes_on(500)
        quiet, first = honest.times_ms[:], len(honest.times_ms)
        with denied_beside(node, window, DENIED_FOR_S) as beside:
            honest.goes_on(1)
            first = len(honest.times_ms)
            honest.goes_on(1)
        beside_ms = honest.times_ms[first:]
        honest.end()
    told(
        39,
        window=window,
        offered_a_second=round(beside["offered"] / DENIED_FOR_S),
        denied_a_second=round(beside["answered"] / DENIED_FOR_S),
        logins=beside["logins"],
        log_bytes=log_bytes,
        p50_quiet_ms=round(statistics.median(quiet), 2),
        p50_ms=round(statistics.median(beside_ms), 2),
    )
    assert log_bytes < MIB / 2  # and as much for the counts, a minute later
    assert alone["answered"] > 0
    assert alone["answered"] <= DENIALS_AT_ONCE + DENIALS_PER_S * 10 * DENIED_FOR_S


# the clock


def proof(node, number, *, resume=b"", password=""):
    """A HELLO, and what answers it: the WELCOME, or the error."""
    with ExitStack() as stack:
        context = stack.enter_context(zmq.Context())
        wild = context.socket(zmq.DEALER)
        stack.callback(wild.close, 0)
        wild.connect(node.address)
        hello = hello_of(number, protocol=2, mechanisms=("PASSWORD",), resume=resume)
        wild.send_multipart(frame(Kind.HELLO, wire.encode(hello), 1))
        while True:
            assert wild.poll(60_000)
            parts = wild.recv_multipart()
            envelope = frames.decode_envelope(parts, 1 << 20)
            if envelope.kind is Kind.WELCOME:
                return wire.decode(parts[1], wire.Welcome)
            if envelope.kind is Kind.ERROR:
                return wire.decode_error(parts[1])
            if envelope.kind is Kind.CHALLENGE:
                if not password:
                    return None
                auth = wire.Auth("PASSWORD", "u", password.encode())
                wild.send_multipart(frame(Kind.AUTH, wire.encode(auth), 2))


def test_at_43_a_clock_set_by_a_day_ends_no_ban_no_token_and_no_throttle(tmp_path, told):
    """They follow the clock of the node, which runs evenly whatever the machine's is set to."""
    held = document(u=["produce queue:orders"], v=["produce queue:orders"])
    held = REPLACE(held, security=REPLACE(held.security, failures_per_user=1))
    held, token = changes.add_token(held, "ci", "v", _in_hours(2))
    clock = WallClock(tmp_path)
    steps = []
    with secured_node(tmp_path, held, command_prefix=clock.prefix) as node:
        login = {"user": "v", "password": PASSWORD, "connect_timeout_s": 60, "reconnect": False}
        with hms.connect(node.address) as own:
            asked = {"by": "user", "value": "v", "seconds": 3600}
            own.administer("client.ban", asked)
            came = proof(node, 200, password=PASSWORD)
            assert isinstance(came, wire.Welcome), came
            for offset_s in (0, DAY_S, -DAY_S, 0):
                clock.set(offset_s)
                with pytest.raises(hms.HmsError) as banned:
                    hms.connect(node.address, **login)
                resumed = proof(node, 200, resume=came.resume)
                before = node.log.count("too many failed logins")
                for _ in range(2):
                    assert isinstance(proof(node, 201, password="wrong"), hms.LoginRefused)
                assert isinstance(resumed, wire.Welcome), (offset_s, resumed)
                steps.append(node.log.count("too many failed logins") - before)
                came = resumed
            own.administer("client.unban", {"by": "user", "value": "v"})
            for offset_s in (DAY_S, -DAY_S):
                clock.set(offset_s)
                hms.connect(node.address, token=token, connect_timeout_s=60).close()
    told(43, steps_s=(DAY_S, -DAY_S), throttled=steps, banned=type(banned.value).__name__)
    assert steps[0] >= 1
    assert steps[1:] == [2, 2, 2]


def _in_hours(count):
    from datetime import UTC, datetime, timedelta

    return datetime.now(UTC).replace(microsecond=0) + timedelta(hours=count)
