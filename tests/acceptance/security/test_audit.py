"""The audit: one record for each order, in the log before its reply, and a chain that tells."""

import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
from itertools import pairwise

import msgspec
import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.boot.security_file import load_security
from hms.engine.engine import Engine
from hms.history.audit_trail import entries_of_log
from hms.records import RecordType, Snapshot, dictionary
from hms.records.audit import (
    NO_HASH,
    UNKNOWN,
    AuditEntry,
    breaks_of,
    chained,
    decode_audit,
    result_of,
)
from hms.server.broker import Lost
from hms.server.node_operations import Later
from hms.store.journal import Journal
from hms.store.journal.audit_files import write_audit_file
from hms.store.journal.disk import REAL_DISK, RealDisk
from hms.store.journal.reader import read_segment, read_store
from hms.wire import structures as wire
from hms.wire.commands import OPERATIONS, Repeat
from hms.wire.frames import Envelope, Kind
from tests.acceptance.security.test_matrix import ARGUMENTS
from tests.acceptance.test_disk import small_disk
from tests.support.gated import GatedNode
from tests.support.login_times import ATTACKS_FULL
from tests.support.memory import SETTINGS
from tests.support.secured import PASSWORD, document, me, secured_node
from tests.support.waiting import wait_until

OF_THE_PROCESS = (
    *("log.level", "log.payloads"),
    *("replica.add", "replica.remove", "replica.switchover"),
)
"""A broker in memory has none."""
ORDERS = [
    row
    for row in OPERATIONS.values()
    if row.repeat is not Repeat.READ and row.name not in OF_THE_PROCESS
]


def entries_of(node):
    return [
        decode_audit(payload) for kind, _, payload in node.store.records if kind == RecordType.AUDIT
    ]


@pytest.fixture
def node():
    held = document(u=[])
    users = {
        **held.user,
        "root": msgspec.structs.replace(held.user["root"], password=held.user["u"].password),
    }
    made = GatedNode(msgspec.structs.replace(held, user=users))
    made.store.seal = lambda: 0
    made.store.finalize = lambda: (2, 3)
    made.login("root", "root", 1)
    made.login("u", "u", 2)
    return made


@pytest.mark.parametrize("row", ORDERS, ids=lambda row: row.name)
def test_each_order_leaves_one_record_done_failed_or_refused(node, row):
    """With who, what and how it ended."""
    fields = row.structure.__struct_fields__
    given = ARGUMENTS.get(row.name, {f: "orders" for f in fields if f in ("name", "xid")})
    if row.name == "client.close":  # not of who asks
        given = {"number": 99}
    elif row.name in ("client.ban", "client.unban"):
        given = {"by": "user", "value": "nobody"}
    answer = node.ask("root", wire.Administer(row.name, given))
    node.ask("u", wire.Administer(row.name, given))

    done, refused = entries_of(node)[-2:]

    error = answer.number if isinstance(answer, hms.HmsError) else 0
    assert (done.user, done.command, done.action, done.result) == (
        "root",
        row.name,
        row.action,
        error,
    )
    assert json.loads(done.arguments).items() >= given.items()
    assert (refused.user, refused.result) == ("u", hms.NotAuthorized.number)
    assert list(breaks_of(entries_of(node))) == []


def test_what_only_reads_leaves_none(node):
    """Hms top would fill the disk."""
    node.ask("root", wire.Administer("queue.list", {}))

    assert entries_of(node) == []


def test_a_flood_of_refusals_is_one_record_a_minute_with_the_exact_count(node):
    """Bounded disk, and nothing is lost of how many there were."""
    for handle in range(1, 1001):
        node.ask("u", wire.OpenProducer(handle, 1, "queue", "orders"))
    assert [one.count for one in entries_of(node)] == [1]
    node.now_ms += 60_000
    node.broker.command(lambda fx, now_ms: node.auditing.flush(now_ms, fx))
    node.step()

    assert [one.count for one in entries_of(node)] == [1, 999]


def test_a_refused_login_is_recorded(node):
    """Under the name that was given, which may be nobody's."""
    node.hello("x", 9)
    node.auth("x", "nobody")

    (entry,) = entries_of(node)
    assert (entry.user, entry.action, entry.result) == (
        "nobody",
        "connect",
        hms.LoginRefused.number,
    )


def test_the_record_is_durable_before_the_reply(node):
    """No order is confirmed that the audit does not have."""
    node.broker.handle("root", [])
    payload = wire.encode(wire.Administer("queue.pause", {"name": "orders"}))
    node.broker.handle("root", [(Envelope(Kind.REQUEST, 1, 1, len(payload)), payload)])
    assert node.outlet.take("root") == []
    assert entries_of(node)
    node.step()
    assert [e.kind for e, _ in node.outlet.take("root")] == [Kind.REPLY]


def test_the_chain_goes_on_over_a_boot_and_over_segments(node):
    """Its head stands in the log, and in the dictionary of each segment."""
    node.ask("root", wire.Administer("queue.pause", {"name": "orders"}))
    head = node.engine.state.audit.number, node.engine.state.audit.head
    for records in (node.store.records, [(*_told(node.engine.dictionary()),)]):
        engine = Engine(SETTINGS)
        recovery = engine.recovery()
        for kind, _, payload in records:
            recovery.apply(kind, payload, 0)
        recovery.finish()
        assert (engine.state.audit.number, engine.state.audit.head) == head


def _told(record):
    return record.type, record.events, b"".join(record.parts)


def chain(count):
    previous, made = NO_HASH, []
    for number in range(1, count + 1):
        entry = AuditEntry(
            number, 5, "u", "s", "purge", "queue:q", "queue.purge", "{}", 0, 1, previous
        )
        made.append(chained(entry))
        previous = made[-1].hash
    return made


def test_each_flipped_byte_of_a_chain_is_found_at_its_record():
    """100 %: what verify names is the first that is wrong."""
    good = chain(4)
    blobs = [msgspec.msgpack.encode(entry) for entry in good]
    found = tried = 0
    for number, blob in enumerate(blobs):
        for at in range(len(blob)):
            spoiled = blob[:at] + bytes([blob[at] ^ 1]) + blob[at + 1 :]
            tried += 1
            try:
                changed = decode_audit(spoiled)
            except msgspec.DecodeError:
                found += 1
                continue
            broken = next(breaks_of([*good[:number], changed, *good[number + 1 :]]), None)
            found += broken is not None and broken[0] is changed
    assert (found, list(breaks_of(good))) == (tried, [])


@pytest.mark.parametrize("spoil", [
    lambda e: e[:1] + e[2:], lambda e: [e[0], e[2], e[1], e[3]], lambda e: [*e, e[-1]],
    lambda e: [*e[:2], chained(msgspec.structs.replace(e[2], user="other")), e[3]],
])  # fmt: skip
def test_what_is_left_out_moved_repeated_or_written_anew_is_found(spoil):
    """Also with a hash of its own: the next record has another one before it."""
    assert list(breaks_of(spoil(chain(4))))


SMALL_LOG = {
    "segment_bytes": "1 MiB",
    "history_bytes": 0,
    "max_transaction_bytes": "256 KiB",
    "max_message_bytes": "256 KiB",
}


@pytest.mark.parametrize("store", ["log", "sqlite"])
def test_the_whole_way_at_a_real_node(tmp_path, monkeypatch, store):
    """Ordered, refused, listed, verified, with an anchor that tells an older copy; the log has long
    let go of the first records' segments, which the history does not keep."""
    own = SMALL_LOG if store == "log" else {"database": f"sqlite:{tmp_path}/store.db"}
    with secured_node(tmp_path, document(u=[]), own=own) as node:
        with hms.connect(node.address) as connection:
            connection.administer("queue.pause", {"name": "orders"})
            connection.administer("queue.resume", {"name": "orders"})
            if store == "log":
                with connection.session() as session:
                    out = session.producer(hms.Queue("payments"))
                    inn = session.consumer(hms.Queue("payments"))
                    while not list(node.store.glob("*.audit")):
                        out.send(bytes(128 << 10))
                        inn.receive(timeout_s=60)
        login = {"user": "u", "password": PASSWORD}
        with hms.connect(node.address, **login) as theirs, pytest.raises(hms.NotAuthorized):
            theirs.administer("queue.purge", {"name": "orders"})
        node.kill()
        monkeypatch.setenv("HMS_CONFIG", str(node.config_file))
        rows = json.loads(_run("list", "--json"))
        told = ["boot", "queue.pause", "queue.resume", "refused"]
        assert [row["command"] for row in rows] == told
        assert [row["user"] for row in rows] == [f"os:{me()}", "root", "root", "u"]
        anchor = _run("anchor").strip()
        assert "4 records are whole" in _run("verify", "--anchor", anchor)
        _run("verify", "--anchor", f"9:{'0' * 64}", code=3)
        _run("verify", "--anchor", f"2:{'0' * 64}", code=4)
        assert len(_run("export").splitlines()) == 4
        assert "queue.resume" in _run("show", "3")
        node.boot()
        with hms.connect(node.address) as connection:
            connection.administer("queue.pause", {"name": "orders"})
        assert "7 records are whole" in _run("verify", "--anchor", anchor)
        assert len(_run("follow", "--limit", "2", "--count", "2").splitlines()) == 2
        if store == "log":
            _is_backed_up(node, tmp_path, anchor)
        node.kill()
        for file in node.store.glob("*.audit"):
            _every_byte(file)


def _is_backed_up(node, folder, anchor):
    """A store that is restored from a backup has the whole audit, also of segments that are gone;
    what it adds to it follows."""
    said = CliRunner().invoke(main, ["backup", "create", "--to", str(folder / "kept")])
    assert said.exit_code == 0, said.output
    (backup,) = (folder / "kept").iterdir()
    kept = [*backup.glob("*.audit")]
    assert kept
    restored = folder / "restored"
    words = ["backup", "restore", str(folder / "kept"), "--to", str(restored), "--json"]
    said = CliRunner().invoke(main, words)
    assert said.exit_code == 0, said.output
    found = list(entries_of_log(restored))
    last = found[-1]
    assert (last.command, last.user, last.resource) == ("restore", f"os:{me()}", "node:NODE1")
    facts = json.loads(last.arguments)
    assert (facts["backup"], facts["lsn"]) == (backup.name, json.loads(said.output)["lsn"])
    assert [entry.number for entry in found][:4] == [1, 2, 3, 4]
    assert list(breaks_of(found)) == []
    number, _, digest = anchor.partition(":")
    assert found[int(number) - 1].hash.hex() == digest
    times = [(restored / file.name).stat().st_mtime for file in kept]
    assert times == [file.stat().st_mtime for file in kept]


ARRAY_OF_ENTRY = 0x9D


def _every_byte(file):
    """Of records one behind the other, as they lie on the disk; of the short form some."""
    whole, starts = file.read_bytes(), [0]
    while (end := starts[-1] + 4 + int.from_bytes(whole[starts[-1] :][:4], "big")) < len(whole):
        starts.append(end)
    for at in range(0, len(whole), 1 if ATTACKS_FULL else 71):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        said = _run("verify", code=4)
        number = sum(start <= at for start in starts)
        if whole[at] == number and whole[at - 1] == ARRAY_OF_ENTRY:  # the number itself
            number ^= 1
        assert re.match(f"record {number}( or a later one)?: ", said), (at, said)
    file.write_bytes(whole)


def _run(*words, code=0):
    done = CliRunner().invoke(main, ["audit", *words], prog_name="hms")
    assert done.exit_code == code, done.output
    return done.output


def test_a_policy_change_has_its_author_and_what_it_changed(tmp_path, monkeypatch):
    """The record said that the node itself had done it; follow shows it as it comes."""
    with secured_node(tmp_path, document(u=[])) as node:
        monkeypatch.setenv("HMS_CONFIG", str(node.config_file))
        command = [sys.executable, "-m", "hms.boot", "audit", "follow", "--count", "3"]
        following = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for words in (["create", "r"], ["create", "s"]):
            done = CliRunner().invoke(main, ["role", *words], prog_name="hms")
            assert done.exit_code == 0
            version = load_security(node.security).version
            wait_until(lambda version=version: f"policy version {version} holds" in node.log)
        _, *told = following.communicate(timeout=250)[0].splitlines()  # the boot is the first
        row = json.loads(told[0])
        assert (row["user"], row["command"]) == (f"os:{me()}", "policy")
        assert json.loads(row["arguments"])["changed"] == ["role.r"]
        assert json.loads(json.loads(told[1])["arguments"])["changed"] == ["role.s"]
        assert "records are whole" in _run("verify")


class Imaging(RealDisk):
    """What a process that is killed at a sync leaves behind, and a power cut right before it."""

    def __init__(self, folder):
        self.folder, self.images, self.synced = folder, [], {}
        self.answered = 0

    def fdatasync(self, fd):
        killed = {file.name: file.read_bytes() for file in self.folder.glob("*.log")}
        self.images.append((self.answered, killed, self.synced))
        super().fdatasync(fd)
        self.synced = killed


class Logged:
    """A journal that has no records yet, as a store of a node in memory."""

    def __init__(self, folder, disk):
        self.records = []
        self._journal = Journal.open(folder, segment_bytes=1 << 18, node_uid=1, disk=disk)
        assert list(self._journal.recover()) == []
        self._journal.start(lambda: msgspec.structs.astuple(dictionary(Snapshot([])))[:3])

    def __getattr__(self, name):
        return getattr(self._journal, name)


def _found_in(folder, files):
    """The queues of the test, and what the audit says of them, of a store that has these files."""
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    engine = Engine(SETTINGS)
    recovery, told = engine.recovery(), []
    for _, kind, _, payload, position in read_store(folder):
        recovery.apply(kind, payload, position)
        if kind == RecordType.AUDIT:
            told.append(decode_audit(payload))
    recovery.finish()
    assert list(breaks_of(told)) == []
    shutil.rmtree(folder)
    return {name for name in engine.state.queues if name.startswith("q")}, told


def logged(folder, count, *, each=2):
    """A log with a chain of so many records, so many of them in each segment."""
    store = Logged(folder, RealDisk())
    for entry in chain(count):
        store.append(int(RecordType.AUDIT), 1, [msgspec.msgpack.encode(entry)])
        store.commit()
        if entry.number % each == 0:
            store.maintain()
            assert store.seal() is not None
    store.close()
    return sorted(folder.glob("*.log"))


def test_a_segment_that_is_pinned_alone_has_its_records_in_their_order(tmp_path):
    """A message waits in it for long, and those behind it are gone: the chain is whole, and is not
    told to be altered."""
    first, *gone, _, _ = logged(tmp_path, 8)
    for file in gone:
        kept = [bytes(r[3]) for r in read_segment(file) if r[1] == RecordType.AUDIT]
        write_audit_file(REAL_DISK, file.with_suffix(".audit"), kept)
        file.unlink()
    first.rename(first.with_suffix(".pinned"))

    found = list(entries_of_log(tmp_path))

    assert [entry.number for entry in found] == [*range(1, 9)]
    assert list(breaks_of(found)) == []


def test_a_flip_in_the_last_record_of_all_is_shown_by_an_anchor(tmp_path, monkeypatch):
    """There is nothing behind it, so it reads as a record that a crash has torn, and as none: the
    records before it are whole. An anchor that was taken when it was there says that it is gone, at
    each of its bytes."""
    *_, last = logged(tmp_path, 5)
    good = chain(5)
    anchor = f"5:{good[-1].hash.hex()}"
    whole, size = last.read_bytes(), len(msgspec.msgpack.encode(good[-1]))
    begin = whole.rindex(msgspec.msgpack.encode(good[-1]))
    monkeypatch.setattr("hms.boot.cli.audit._entries", lambda *_a, **_k: entries_of_log(tmp_path))
    said = _run("verify", "--anchor", anchor)
    assert "5 records are whole" in said
    steps = range(begin, begin + size, 1 if ATTACKS_FULL else 23)
    for at in steps:
        last.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert "4 records are whole" in _run("verify")
        assert "older than record 5" in _run("verify", "--anchor", anchor, code=3)


def test_a_node_that_dies_at_any_sync_of_200_commands_has_each_answered_one_audited(
    tmp_path, record_property
):
    """Killed, what was done and what the audit says are the same; after a power cut nothing that
    was answered lacks its record, and no record its command. The short form looks at every fourth
    sync, from another one on in each run; HMS_ATTACKS=full at all."""
    (store := tmp_path / "log").mkdir()
    disk = Imaging(store)
    held = document(u=[])
    users = {
        **held.user,
        "root": msgspec.structs.replace(held.user["root"], password=held.user["u"].password),
    }
    held = msgspec.structs.replace(held, user=users)
    node = GatedNode(held, store=Logged(store, disk))
    node.login("root", "root", 1)
    for number in range(200):
        verb = "queue.delete" if number % 4 == 3 else "queue.create"
        name = f"q{number - 1 if number % 4 == 3 else number}"
        answer = node.ask("root", wire.Administer(verb, {"name": name}))
        assert not isinstance(answer, hms.HmsError)
        disk.answered += 1
    node.store.close()
    assert len(disk.images) >= 200
    step = 1 if ATTACKS_FULL else 4
    looked_at = disk.images[random.randrange(step) :: step]
    for answered, *images in looked_at:
        for files in filter(None, images):
            there, told = _found_in(tmp_path / "image", files)
            done = set()
            for entry in told:
                name = entry.resource.removeprefix("queue:")
                (done.add if entry.command == "queue.create" else done.discard)(name)
            assert len(told) >= answered
            assert there == done
    record_property("figures", {"test": "audit", "syncs": len(looked_at), "commands": 200})


def test_the_head_of_each_is_the_hash_before(node):
    """A chain, and not a list of hashes."""
    for verb in ("queue.pause", "queue.resume"):
        node.ask("root", wire.Administer(verb, {"name": "orders"}))

    assert all(b.previous == a.hash for a, b in pairwise(entries_of(node)))


SMALL_DISK = {
    "segment_bytes": "1 MiB",
    "max_message_bytes": "64 KiB",
    "max_transaction_bytes": "64 KiB",
}


@pytest.mark.parametrize("store", ["log", "sqlite"])
def test_boots_and_stops_are_audited_and_a_kill_is_told_by_the_next_boot(
    tmp_path, monkeypatch, store
):
    """Who booted it, how, and what a COLD boot deleted; before anybody is served."""
    own = {} if store == "log" else {"database": f"sqlite:{tmp_path}/store.db"}
    with secured_node(tmp_path, document(u=[]), own=own) as node:
        monkeypatch.setenv("HMS_CONFIG", str(node.config_file))
        assert _told_of_lives() == [("boot", f"os:{me()}", "WARM")]
        with hms.connect(node.address) as connection, connection.session() as session:
            for _ in range(3):
                session.producer(hms.Queue("orders")).send(b"x")
        assert node.stop() == 0
        assert _told_of_lives()[1:] == [("stop", "system", None)]
        node.boot(warm=False)
        *_, cold = json.loads(_run("list", "--json"))
        said = json.loads(json.loads(_run("show", str(cold["number"]), "--json"))["arguments"])
        assert (cold["command"], said["start"], said["deleted"]) == ("boot", "COLD", 3)
        assert cold["from"].startswith(f"uid {os.getuid()}")
        node.kill()
        node.boot(warm=True)
        node.kill()
        node.boot(warm=True)
        lost = [("no orderly stop", "system", None), ("boot", f"os:{me()}", "WARM")]
        assert _told_of_lives()[3:] == [*lost, *lost]
        assert node.stop() == 0
        node.boot(warm=True)
        assert [command for command, *_ in _told_of_lives()[-2:]] == ["stop", "boot"]
        assert "records are whole" in _run("verify")


def _told_of_lives():
    """What the audit of a node says of its boots and stops."""
    rows = [json.loads(line) for line in _run("export").splitlines()]
    return [
        (row["command"], row["user"], json.loads(row["arguments"]).get("start"))
        for row in rows
        if row["command"] in ("boot", "stop", "no orderly stop")
    ]


def test_a_node_that_is_killed_right_behind_its_boot_has_the_boot_in_its_audit(
    tmp_path, monkeypatch
):
    """Its segments were let go since: what is left does not say that it was stopped."""
    with secured_node(tmp_path, document(u=[]), own=SMALL_LOG) as node:
        with hms.connect(node.address) as connection, connection.session() as session:
            out, inn = session.producer(hms.Queue("orders")), session.consumer(hms.Queue("orders"))
            while not list(node.store.glob("*.audit")):
                out.send(bytes(128 << 10))
                inn.receive(timeout_s=60)
        node.kill()
        monkeypatch.setenv("HMS_CONFIG", str(node.config_file))
        node.boot()
        lives = [command for command, *_ in _told_of_lives()]
        assert lives == ["boot", "no orderly stop", "boot"]


class Slow:
    """A keeper of the policy that answers when the test says so."""

    def __init__(self):
        self.later = Later()

    def keep(self, _verb, _asked, _user, _number):
        return self.later

    reload = show = verify_audits = may_renew = None


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("fault", [None, hms.SecurityFileError(report="cut off")])
def test_an_order_whose_end_comes_later_is_unknown_until_then(is_lost, fault):
    """The record said ok, and stayed so when the order failed behind a connection that was gone."""
    held, keeper = document(u=[]), Slow()
    root = msgspec.structs.replace(held.user["root"], password=held.user["u"].password)
    held = msgspec.structs.replace(held, user={**held.user, "root": root})
    node = GatedNode(held, keeper=keeper)
    node.login("root", "root", 1)
    asked = wire.Administer("user.disable", {"name": "u"})
    assert node.send("root", Kind.REQUEST, wire.encode(asked)) == []
    (order,) = entries_of(node)
    assert (order.result, result_of(order)) == (UNKNOWN, "unknown")
    if is_lost:
        node.broker.handle("root", [Lost("gone")])

    known = node.engine.state.connections
    said = {"version": 2} if fault is None else fault
    node.broker.command(lambda fx, now_ms: keeper.later.answer(said, known, now_ms, fx))
    node.step()

    _, ended = entries_of(node)
    assert (ended.user, ended.command) == ("root", "user.disable")
    assert ended.result == (0 if fault is None else hms.SecurityFileError.number)
    said = json.loads(ended.arguments)
    assert said == {"order": order.number, "audit": {"connection": 1}}
    assert bool(node.outlet.take("root")) is not is_lost
    assert list(breaks_of(entries_of(node))) == []


def test_a_record_has_a_digest_of_the_roles_that_were_active(node):
    """§8: what somebody might do then; the roles of a user may be other ones by now."""
    node.ask("root", wire.Administer("queue.pause", {"name": "orders"}))
    node.ask("u", wire.Administer("queue.pause", {"name": "orders"}))

    done, refused = entries_of(node)

    for entry, roles in ((done, b"admin\nsecurity\n"), (refused, b"u\n")):
        digest = hashlib.sha256(roles).hexdigest()[:16]
        assert entry.source.endswith(f" by PASSWORD, roles {digest}")


def test_a_full_disk_takes_orders_with_their_records_or_none(tmp_path, monkeypatch):
    """P8: an operator frees a full disk with orders; each that was answered has its record, also
    when the node is killed then. One that cannot be written is not answered."""
    with small_disk(tmp_path / "disk", "8m") as (seen, inside):
        (filler := seen / "filler").write_bytes(bytes(2 << 20))
        place = {"store": tmp_path / "disk" / "store", "command_prefix": inside}
        with secured_node(tmp_path, document(u=[]), own=SMALL_DISK, **place) as node:
            done = []
            with hms.connect(node.address, reconnect=False) as connection:
                out = connection.session().producer(hms.Queue("orders"))
                with contextlib.suppress(hms.StoreFull):
                    for _ in range(2000):
                        out.send(bytes(16_000))
                with contextlib.suppress(OSError):  # the node may take some of it meanwhile
                    filler.write_bytes(bytes(_free(seen) + filler.stat().st_size))
                with contextlib.suppress(hms.HmsError):
                    for number in range(300):
                        verb = ("queue.pause", "queue.resume")[number % 2]
                        connection.administer(verb, {"name": "payments"})
                        done.append(verb)
            assert done
            if node.is_running:
                node.kill()
            monkeypatch.setenv("HMS_CONFIG", str(node.config_file))
            told = _listed(inside, node)
            good = [row["command"] for row in told if row["result"] == "ok"]
            assert good[: 1 + len(done)] == ["boot", *done]
            filler.unlink()
            node.boot(warm=True)
            with hms.connect(node.address) as connection:
                connection.administer("queue.purge", {"name": "orders"})
            assert _listed(inside, node)[-1]["command"] == "queue.purge"


def _listed(inside, node):
    """The store is where the node is."""
    command = [*inside, sys.executable, "-m", "hms.boot", "audit", "list", "--limit", "1000"]
    command += ["--json", "--config", str(node.config_file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=250)
    return json.loads(done.stdout)


def _free(folder):
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def test_a_log_that_cannot_be_written_answers_no_order(tmp_path, monkeypatch):
    """Its folder is gone under the node, as a disk that was taken away: the order is not answered,
    the node stops, and what it answered before is there."""
    with secured_node(tmp_path, document(u=[])) as node:
        with hms.connect(node.address, reconnect=False) as connection:
            connection.administer("queue.pause", {"name": "orders"})
            away = node.store.with_name("away")
            node.store.rename(away)
            with pytest.raises(hms.HmsError):
                connection.administer("queue.resume", {"name": "orders"})
        node.wait()
        away.rename(node.store)
        monkeypatch.setenv("HMS_CONFIG", str(node.config_file))
        rows = json.loads(_run("list", "--json"))
        assert [row["command"] for row in rows][:2] == ["boot", "queue.pause"]
        node.boot(warm=True)
        with hms.connect(node.address) as connection:
            shown = connection.administer("queue.show", {"name": "orders"})
        resumed = [row for row in rows if row["command"] == "queue.resume"]
        assert bool(shown["paused"]) is not bool(resumed)
