"""Alerts of the node's parts: each is provoked, and ends."""

import ssl
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hms.boot.monitoring.certificates import ends_ms
from hms.boot.monitoring.watch_parts import HOUR_S, LOOKS_KEPT, Parts, PartsWatch
from hms.boot.sections import Alerts as Limits
from hms.engine.effects import Effects
from hms.engine.log.audit_chain import AuditChain
from hms.records.audit import NO_HASH, AuditEntry, chained
from hms.server.alerts import Alerts
from hms.store.interface import LogGrowth

DAY_MS = 86_400_000
SERVER = {"name": "bank", "fault": "", "failing": ""}


class Rig:
    """A node whose parts stand here."""

    def __init__(self):
        self.now_s, self.now_ms = 100.0, 1_800_000_000_000
        self.turn_s, self.growth, self.closed = 0.0, LogGrowth(1, 3, 0), 0
        self.servers, self.missing, self.files = [dict(SERVER)], [], []
        self.broken = self.rejected = self.differs = self.unsent = self.looked_into = (
            self.logged
        ) = ""
        self.copies = {}
        self.resident = 0, 0
        self.alerts = Alerts(lambda: self.now_ms, lambda: self.now_s)
        parts = Parts(
            slowest_turn_s=lambda: self.turn_s,
            closed_for_memory=lambda: self.closed,
            resident=lambda: self.resident,
            growth=lambda: self.growth,
            servers=lambda: self.servers,
            listeners_missing=lambda: self.missing,
            audit_broken=lambda: self.broken,
            anchor_not_sent=lambda: self.unsent,
            debugger_allowed=lambda: self.looked_into,
            log_payloads=lambda: self.logged,
            policy_rejected=lambda: self.rejected,
            policy_differs=lambda: self.differs,
            certificates=lambda: self.files,
            copies=lambda: self.copies,
        )
        clocks = (lambda: self.now_ms, lambda: self.now_s)
        self.watch = PartsWatch(self.alerts, Limits(), parts, *clocks)

    def look(self, later_s=1.0):
        """What is wrong so much later, by name."""
        self.now_s += later_s
        self.watch.look()
        return {one["alert"]: one["text"] for one in self.alerts.active()}


@pytest.fixture
def rig():
    made = Rig()
    assert made.look() == {}
    return made


def test_a_turn_of_the_main_loop_that_takes_long_is_told_for_a_minute(rig):
    """All sockets waited for it; that it is over already does not make it unseen."""
    rig.turn_s = 0.1
    assert rig.look() == {}
    rig.turn_s = 0.25
    assert rig.look() == {"slow_main_loop": "a turn of the main loop took 250 ms"}
    rig.turn_s = 0.0
    for _ in range(LOOKS_KEPT - 1):
        assert rig.look().keys() == {"slow_main_loop"}
    assert rig.look() == {}


def test_connections_that_are_closed_for_their_bytes_are_told_for_a_minute(rig):
    """It was a line of the log for each, and an operator saw nothing."""
    rig.closed = 1
    said = "closed in a minute: too many bytes were held for them"
    assert rig.look() == {"memory_pressure": f"1 connection was {said}"}
    rig.closed = 3
    assert rig.look() == {"memory_pressure": f"3 connections were {said}"}
    for _ in range(LOOKS_KEPT - 2):
        assert rig.look().keys() == {"memory_pressure"}
    assert rig.look() == {}


def test_a_log_that_grows_while_its_oldest_segment_stays_is_told(rig):
    """An idle log that is a little too large is no alert, nor one that is cleaned as it grows."""
    rig.growth = LogGrowth(1, 3, 9 << 20)
    assert rig.look(1000) == {}
    rig.growth = LogGrowth(1, 5, 9 << 20)
    assert rig.look() == {}
    said = rig.look(600)
    text = "the log is 9 MiB larger than it should be; its oldest segment, 1, stays while 2 were"
    assert said == {"log_not_compacting": f"{text} written"}
    rig.growth = LogGrowth(2, 6, 9 << 20)
    assert rig.look(600) == {}
    rig.growth = None  # a database
    assert rig.look(600) == {}


def test_a_server_that_ends_again_and_again_or_was_given_up_is_named(rig):
    """Its services are not there; one that is started anew at once is no alert."""
    rig.servers[0]["failing"] = "process 7 ended with exit code 1"
    assert rig.look() == {}
    assert rig.look(10) == {"server_down": "bank: process 7 ended with exit code 1"}
    rig.servers[0]["fault"] = "no other is started"
    assert rig.look() == {"server_down": "bank: no other is started"}
    rig.servers[0] = dict(SERVER)
    assert rig.look() == {}


def test_copies_of_the_log_that_are_missing_are_told(rig):
    """A node that works and could not survive its machine looks as well as ever."""
    rig.copies = {"replica_unprotected": "a leads, and no copy may be lost", "arbiter_down": ""}
    assert rig.look() == {}
    assert rig.look(10) == {"replica_unprotected": "a leads, and no copy may be lost"}
    rig.copies["replica_unprotected"] = ""
    assert rig.look() == {}


def test_a_node_that_is_about_to_be_ended_for_its_memory_is_told(rig):
    """The kernel says nothing before."""
    rig.resident = 901 << 20, 0
    assert rig.look() == {}
    rig.resident = 900 << 20, 1000 << 20
    assert rig.look() == {}
    rig.resident = 901 << 20, 1000 << 20
    said = "the node has 901 MiB in memory, of 1000 MiB that it may have"
    assert rig.look() == {"process_memory_high": said}
    rig.resident = 500 << 20, 1000 << 20
    assert rig.look() == {}


def test_a_listener_whose_service_nobody_offers_is_told(rig):
    """Its messages wait, and nothing else says so."""
    rig.missing = [{"service": "PAY", "destination": "queue:orders"}]
    assert rig.look() == {}
    said = "nobody offers PAY (queue:orders), whose messages wait"
    assert rig.look(10) == {"listener_missing": said}
    rig.missing = []
    assert rig.look() == {}


@pytest.mark.parametrize(
    ("part", "alert"),
    [
        ("broken", "audit_broken"),
        ("rejected", "policy_rejected"),
        ("unsent", "anchor_not_sent"),
        ("looked_into", "debugger_allowed"),
        ("logged", "log_payloads"),
    ],
)
def test_what_a_part_says_is_an_alert_at_once(rig, part, alert):
    """A broken chain and a refused policy hold until they are gone."""
    setattr(rig, part, "why")
    assert rig.look() == {alert: "why"}
    setattr(rig, part, "")
    assert rig.look() == {}


def test_a_policy_that_differs_for_a_minute_is_told(rig):
    """A change takes a moment to come to all nodes."""
    rig.differs = "node2 hold another policy"
    assert rig.look(59) == {}
    assert rig.look(60) == {"policy_differs": "node2 hold another policy"}
    rig.differs = ""
    assert rig.look() == {}


def certificate(path, end):
    """A file with one that ends then."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(datetime(2020, 1, 1, tzinfo=UTC)).not_valid_after(end)
    made = builder.sign(key, hashes.SHA256())
    with path.open("ab") as file:
        file.write(made.public_bytes(serialization.Encoding.PEM))


def test_a_certificate_that_ends_soon_is_named_until_another_is_there(rig, tmp_path):
    """Two weeks before, and after that too; what cannot be read is for whoever needs it."""
    file = tmp_path / "ca.pem"
    now = datetime.fromtimestamp(rig.now_ms / 1000, UTC)
    certificate(file, now + timedelta(days=20))
    certificate(file, now + timedelta(days=40))
    (tmp_path / "none.pem").write_text(ssl.DER_cert_to_PEM_cert(b"\x30\x05abc"))
    rig.files = [file, tmp_path / "none.pem", tmp_path / "missing.pem"]
    assert rig.look(HOUR_S) == {}
    rig.now_ms += 7 * DAY_MS
    assert rig.look() == {"certificate_expiring": f"{file} ends in 13 days"}
    rig.now_ms += 30 * DAY_MS
    assert rig.look() == {"certificate_expiring": f"{file} has ended"}
    file.unlink()
    certificate(file, datetime(2060, 1, 1, tzinfo=UTC))  # with four digits of a year
    assert rig.look(HOUR_S) == {}
    assert ends_ms(file) == 1000 * datetime(2060, 1, 1, tzinfo=UTC).timestamp()


def entries(count):
    """A chain of so many."""
    found, before = [], NO_HASH
    for n in range(1, count + 1):
        about = ("lena", "cli", "operate", "node", "log.seal", "{}", 0, 1, before)
        found.append(chained(AuditEntry(n, 1000, *about)))
        before = found[-1].hash
    return found


def read_back(found):
    """What a boot says of the chain."""
    chain = AuditChain()
    for entry in found:
        chain.read_back(entry)
    assert chain.number == 3
    return chain.broken.partition(";")[0]


def test_a_boot_sees_where_the_chain_of_the_audit_breaks():
    """What was before the log's first segment has been retired, and is no break."""
    one, two, three = entries(3)
    altered = msgspec.structs.replace(two, user="mallory")
    assert read_back([one, two, three]) == ""
    assert read_back([two, three]) == ""
    assert read_back([one, altered, three]) == "record 2: it was altered"
    assert read_back([one, chained(altered), three]) == "record 3: the record before it was altered"
    assert read_back([one, three]) == "record 3: number 2 should stand here"


def test_what_the_node_itself_writes_is_no_break():
    """Else every node would be in alarm after its first boot."""
    live, fx = AuditChain(), Effects()
    for entry in entries(2):
        live.append(entry, fx)
    again = AuditChain()
    for entry in entries(2):
        again.read_back(entry)
    assert (again.broken, again.number, again.head) == ("", live.number, live.head)
