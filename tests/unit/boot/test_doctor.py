"""hms doctor: each check has something that makes it fail, and says how to cure it."""

import errno
import json
import os
import resource
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec import structs

from hms.boot.cli import main
from hms.boot.config import load
from hms.boot.doctor.capacity import Load, estimate
from hms.boot.doctor.checks import CHECKS, Patient, Verdict, examine
from hms.boot.doctor.disk_probe import is_lock_held
from hms.boot.doctor.machine import Machine
from hms.boot.doctor.probing import honesty
from hms.errors.catalogue import NotAuthorized
from hms.history.backups.backup_manifest import Manifest, write_manifest
from hms.history.backups.shipped_mark import Mark, write_mark

MIB = 1 << 20
MOUNT = "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"


@pytest.fixture
def root(tmp_path):
    """A system in a folder."""
    made = tmp_path / "root"
    files = {
        "proc/self/mountinfo": MOUNT,
        "proc/sys/vm/overcommit_memory": "0",
        "proc/swaps": "Filename Type Size Used Priority\n",
        "proc/sys/vm/swappiness": "60",
        "proc/sys/vm/dirty_ratio": "20",
        "proc/sys/net/core/somaxconn": "4096",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        "sys/fs/cgroup/memory.max": "max",
        "sys/dev/block/8:1/queue/write_cache": "write back",
    }
    for name, text in files.items():
        path = made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return made


@pytest.fixture
def patient(tmp_path, root):
    """One that is well, in a system that is."""
    file = tmp_path / "hms.conf"
    file.write_text(
        '[node.N1]\nhistory_bytes = "1 MiB"\nsegment_bytes = "1 MiB"\n'
        'max_message_bytes = "64 KiB"\nmax_transaction_bytes = "128 KiB"\n'
        "[hms.queue.orders]\n"
    )
    config = load(file)
    node = config.node()
    node.store.mkdir(parents=True, mode=0o750)
    node.runtime.mkdir(parents=True, mode=0o750)
    machine = Machine(
        root,
        limit_of=lambda _: (1 << 20, 1 << 20),
        is_clock_synced=lambda: True,
        why_not_bindable=lambda _host, _port: "",
        why_unknown=lambda _host: "",
        mtu_to=lambda _host: 1500,
        has_zone=lambda _name: True,
        pause=lambda _seconds: None,
        free_bytes=lambda _path: 1 << 40,
        versions={"native": "yes", "java": "21"},
    )
    return Patient(config, node, machine, sync=_slow_sync, syncs=10)


def _slow_sync(_fd):
    """About as long as a device takes."""
    begun = os.times().elapsed
    total = 0
    while total < 3000 and os.times().elapsed - begun < 1:
        total += 1


def _write(name, text):
    def spoil(patient):
        path = patient.machine.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return patient

    return spoil


def _machine(**changes):
    return lambda patient: replace(patient, machine=replace(patient.machine, **changes))


def _node(**changes):
    return lambda patient: replace(patient, node=structs.replace(patient.node, **changes))


def _counters(patient):
    """A device that does not see what is synced."""
    return _write("sys/dev/block/8:1/stat", " ".join(["5"] * 17))(patient)


def _world_readable(patient):
    patient.node.store.chmod(0o755)
    return patient


def _says_hung(patient):
    from dataclasses import asdict

    from hms.boot.monitoring.state_file import StateFile, state_file_of
    from hms.boot.supervise import identify

    said = {"process": asdict(identify(os.getpid())), "state": "failed", "reason": "EIO"}
    said |= {"written_s": 0.0, "watchdog_s": 30.0, "hung": [], "checks": {}, "alerts": []}
    StateFile(state_file_of(patient.node)).write(said)
    return patient


def _bad_security(patient):
    file = patient.config.path.with_name("security.toml")
    file.write_text("[user.x]\nnonsense = 1\n")
    file.chmod(0o600)
    return _node(security=file)(patient)


def _fails(_fd):
    raise OSError(errno.EINVAL, "Invalid argument")


def _runs(patient):
    """As this very process."""
    from dataclasses import asdict

    from hms.boot.supervise import identify

    said = json.dumps(asdict(identify(os.getpid())))
    (patient.node.runtime / f"{patient.node.name}.process").write_text(said)
    return patient


def _asked(answer):
    def ask(_node, _verb):
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


def _letters(patient):
    rows = [{"name": "HMS.DLQ", "waiting": 3, "in_flight": 0}]
    return replace(_runs(patient), ask=_asked(rows))


def _no_answer(patient):
    refusal = NotAuthorized(user="x", action="view", resource="queue")
    return replace(_runs(patient), ask=_asked(refusal))


def _configured_anew(patient):
    from hms.boot.monitoring.state_file import StateFile, read_state, state_file_of

    _says_hung(_runs(patient))
    file = state_file_of(patient.node)
    StateFile(file).write(read_state(file) | {"began_s": time.monotonic() - 3600})
    return patient


def _written_tomorrow(patient):
    file = patient.node.store / "00000001.log"
    file.touch()
    os.utime(file, (time.time() + 86_400,) * 2)
    return patient


def _drifts():
    """A wall clock that gains a tenth."""
    at = iter(range(1000))
    return lambda: ((n := next(at)) * 1.1, n)


def _in_a_cluster(patient, **changes):
    """With another node, at the same machine."""
    file = patient.config.path
    file.write_text(
        '[node.N1]\nhistory_bytes = "1 MiB"\nsegment_bytes = "1 MiB"\n'
        'max_message_bytes = "64 KiB"\nmax_transaction_bytes = "128 KiB"\n[node.N2]\n'
        'listen = ["ipc:///tmp/other.sock"]\n'
        '[svrgroup.g1]\nNODENAME = "N1"\nHMSINDEX = 1\nHMSPORT = 7901\n'
        '[svrgroup.g2]\nNODENAME = "N2"\nHMSINDEX = 2\nHMSPORT = 7902\n'
    )
    config = load(file)
    return replace(patient, config=config, node=config.node("N1"), **changes)


def _late_peer(patient):
    return _in_a_cluster(patient, ask=_asked({"now_ms": time.time() * 1000 - 60_000}))


def _small_way(patient):
    machine = replace(patient.machine, mtu_to=lambda _host: 576)
    return _in_a_cluster(patient, machine=machine)


def _unknown_host(patient):
    machine = replace(patient.machine, why_unknown=lambda _host: "Name or service not known")
    return _in_a_cluster(patient, machine=machine)


def _key(patient, days):
    file = patient.config.path.with_name("link.key")
    if days is not None:
        file.write_text("key")
        file.chmod(0o600)
        os.utime(file, (time.time() - days * 86_400,) * 2)
    group = structs.replace(patient.node.group, link_key_file=file)
    return _node(group=group)(patient)


def _damaged_header(patient):
    (patient.node.store / "0000000000000001.log").write_bytes(b"x" * 4096)
    return patient


def _backups(age_s):
    """One verified backup of that age; None: none at all."""

    def spoil(patient):
        folder = patient.config.path.with_name("backups")
        folder.mkdir()
        if age_s is not None:
            created_ms = int((time.time() - age_s) * 1000)
            (folder / "b1").mkdir()
            numbers = 1, "", 1, 1, 1, 1, 1, 1, created_ms
            manifest = Manifest("b1", patient.node.name, *numbers, "", {}, [])
            write_manifest(folder / "b1", manifest)
        return replace(patient, backups=folder)

    return spoil


def _shipped(age_s):
    """A fresh backup, and a round of shipping so long ago."""

    def spoil(patient):
        made = _backups(60)(patient)
        at_ms = int((time.time() - age_s) * 1000)
        write_mark(made.backups, Mark(node=patient.node.name, backup="b1", lsn=0, at_ms=at_ms))
        return made

    return spoil


def _configured(spoil):
    """The same, and where they are is told by the configuration alone."""

    def spoilt(patient):
        made = spoil(patient)
        node = structs.replace(made.node, backups=made.backups)
        return replace(made, node=node, backups=None)

    return spoilt


def _grows(days):
    """A store that was 1 GiB in the last hour, and room for so many days of that."""

    def spoil(patient):
        file = patient.node.store / "00000007.log"
        file.touch()
        os.truncate(file, 1 << 30)
        os.utime(file, (time.time() - 3600,) * 2)
        machine = replace(patient.machine, free_bytes=lambda _: int(days * 24 * (1 << 30)))
        return _node(history_bytes=1 << 50)(replace(patient, machine=machine))

    return spoil


def _flushes_nothing(patient):
    _write("proc/self/mountinfo", "1 1 8:1 / / rw,nobarrier - ext4 d rw\n")(patient)
    return patient


def _lock_of_nobody(monkeypatch):
    monkeypatch.setattr("hms.boot.doctor.checks.is_lock_held", lambda _: "two had it")


SPOILT = [
    (
        "disk.filesystem",
        Verdict.FAIL,
        _write("proc/self/mountinfo", "1 1 0:5 / / rw - tmpfs t rw\n"),
    ),
    ("disk.filesystem", Verdict.WARN, _write("proc/self/mountinfo", "1 1 0:5 / / rw - nfs n rw\n")),
    (
        *("disk.mount_options", Verdict.FAIL),
        _write("proc/self/mountinfo", "1 1 8:1 / / ro,nobarrier - ext4 d rw\n"),
    ),
    ("disk.space", Verdict.FAIL, _node(segment_bytes=1 << 50)),
    ("disk.space", Verdict.WARN, _node(history_bytes=1 << 50)),
    ("disk.sync", Verdict.FAIL, _counters),
    ("disk.sync", Verdict.WARN, lambda patient: replace(patient, sync=lambda _fd: None)),
    ("kernel.open_files", Verdict.WARN, _machine(limit_of=lambda _: (1024, 1024))),
    ("kernel.processes", Verdict.WARN, _machine(limit_of=lambda _: (20, 20))),
    ("kernel.overcommit", Verdict.WARN, _write("proc/sys/vm/overcommit_memory", "2")),
    ("kernel.swap", Verdict.WARN, _write("proc/swaps", "Filename\n/dev/sdb partition 1 0 -2\n")),
    (
        *("kernel.huge_pages", Verdict.WARN),
        _write("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never"),
    ),
    ("kernel.dirty", Verdict.WARN, _write("proc/sys/vm/dirty_ratio", "80")),
    ("kernel.cgroup_memory", Verdict.FAIL, _write("sys/fs/cgroup/memory.max", str(512 * MIB))),
    ("clock.synchronised", Verdict.WARN, _machine(is_clock_synced=lambda: False)),
    ("network.addresses", Verdict.FAIL, _machine(why_not_bindable=lambda *_: "in use")),
    ("network.somaxconn", Verdict.WARN, _write("proc/sys/net/core/somaxconn", "128")),
    ("software.python", Verdict.FAIL, _machine(versions={"python": "3.10.9"})),
    ("software.libzmq", Verdict.FAIL, _machine(versions={"libzmq": "4.3.2"})),
    ("software.native", Verdict.WARN, _machine(versions={"native": "no"})),
    ("software.packages", Verdict.FAIL, _machine(versions={"msgspec": ""})),
    (
        "software.packages",
        Verdict.FAIL,
        _machine(versions={"msgspec": "0.1"}, needed=lambda: ["msgspec>=0.19,<1"]),
    ),
    ("software.java", Verdict.WARN, _machine(versions={"java": "11"})),
    ("disk.write_cache", Verdict.FAIL, _flushes_nothing),
    ("disk.directory_sync", Verdict.FAIL, lambda patient: replace(patient, sync_folder=_fails)),
    ("disk.log_device", Verdict.WARN, _machine(free_bytes=lambda _path: 1 << 30)),
    ("kernel.entropy", Verdict.WARN, _write("proc/sys/kernel/random/entropy_avail", "7")),
    ("kernel.time_zones", Verdict.WARN, _machine(has_zone=lambda name: name == "UTC")),
    ("clock.steps", Verdict.FAIL, _written_tomorrow),
    ("clock.monotonic", Verdict.WARN, _machine(clocks=_drifts())),
    ("clock.peers", Verdict.WARN, _late_peer),
    ("clock.peers", Verdict.WARN, _in_a_cluster),
    ("network.names", Verdict.FAIL, _unknown_host),
    ("network.mtu", Verdict.WARN, _small_way),
    ("network.keepalive", Verdict.WARN, _node(heartbeat_s=3600.0)),
    ("hms.configuration", Verdict.WARN, _configured_anew),
    ("hms.keys", Verdict.FAIL, lambda patient: _key(patient, None)),
    ("hms.keys", Verdict.WARN, lambda patient: _key(patient, 400)),
    ("hms.store", Verdict.FAIL, _damaged_header),
    ("hms.backup", Verdict.FAIL, _backups(None)),
    ("hms.backup", Verdict.WARN, _backups(30 * 3600)),
    ("hms.backup", Verdict.WARN, lambda patient: _shipped(3600)(_runs(patient))),
    ("hms.backup", Verdict.FAIL, _configured(_backups(None))),
    ("hms.backup", Verdict.WARN, _configured(_backups(30 * 3600))),
    ("hms.dead_letters", Verdict.WARN, _letters),
    ("hms.dead_letters", Verdict.WARN, _no_answer),
    ("hms.disk_days", Verdict.WARN, _grows(5)),
    ("hms.disk_days", Verdict.FAIL, _grows(0.5)),
    ("hms.modes", Verdict.WARN, _world_readable),
    ("hms.health", Verdict.FAIL, _says_hung),
    ("hms.security", Verdict.FAIL, _bad_security),
]


def test_a_system_that_is_well_has_nothing_to_say(patient):
    """What always warns is not read."""
    findings = {one.check: one for one in examine(patient)}
    assert findings.keys() == CHECKS.keys()
    assert "open: the node trusts every process" in findings["hms.security"].value
    assert [one for one in findings.values() if one.verdict is Verdict.FAIL] == []
    warned = {name for name, one in findings.items() if one.verdict is Verdict.WARN}
    assert warned <= {"disk.space", "disk.sync"}  # this very machine may be short of both


@pytest.mark.parametrize(
    ("check", "verdict", "spoil"), SPOILT, ids=[f"{n}-{one[0]}" for n, one in enumerate(SPOILT)]
)
def test_each_check_finds_what_it_is_for(patient, check, verdict, spoil):
    """It says why that matters, and what to do."""
    found = {one.check: one for one in examine(spoil(patient))}[check]
    assert found.verdict is verdict, found
    assert found.why
    assert found.cure


def test_a_backup_that_is_fresh_a_key_and_clocks_that_agree_are_well(patient):
    """What always fails is not read either."""
    patient = _shipped(3600)(_key(patient, 3))  # it does not run: nothing is to be shipped
    found = {one.check: one.verdict for one in examine(patient)}
    assert (found["hms.backup"], found["hms.keys"]) == (Verdict.OK, Verdict.OK)
    same = _in_a_cluster(patient, ask=lambda _node, _verb: {"now_ms": time.time() * 1000})
    assert {one.check: one for one in examine(same)}["clock.peers"].verdict is Verdict.OK


def test_backups_are_looked_at_where_the_configuration_says_or_it_is_told_that_nobody_does(patient):
    """A check that did not look must not pass for one that found all well."""
    found = {one.check: one for one in examine(patient)}["hms.backup"]
    key = f"backups of [node.{patient.node.name}]"
    assert found.value == f"not looked at: neither {key} nor --backups is set"
    found = {one.check: one for one in examine(_configured(_backups(60))(patient))}["hms.backup"]
    assert (found.verdict, found.value) == (Verdict.OK, "the last one is 0.0 h old")


def test_a_configuration_with_a_fault_is_a_finding(patient):
    """Who runs it from a monitor wants rows, and not an error."""
    patient.config.path.write_text("[node.N1]\nlisten = 7\n")
    done = CliRunner().invoke(main, ["doctor", "--config", str(patient.config.path), "--json"])
    assert done.exit_code == 1
    (row,) = json.loads(done.stdout)
    assert (row["check"], row["verdict"]) == ("hms.configuration", "fail")
    assert "hms.conf:2" in row["value"]


def test_every_check_is_made_to_fail(patient, monkeypatch):
    """One that never failed is not trusted."""
    _lock_of_nobody(monkeypatch)
    found = {one.check: one for one in examine(patient)}["disk.lock"]
    assert found.verdict is Verdict.FAIL
    spoilt = {check for check, _, _ in SPOILT}
    assert CHECKS.keys() - spoilt == {"disk.lock"}


def test_a_folder_that_may_not_be_written_is_named(patient, monkeypatch):
    """The call and the file are what its reader needs."""

    def refused(*_args, **_options):
        raise PermissionError(errno.EACCES, "Permission denied", str(patient.node.store))

    monkeypatch.setattr("tempfile.mkdtemp", refused)
    found = {one.check: one for one in examine(patient)}["disk.sync"]
    assert found.verdict is Verdict.FAIL
    assert found.value == f"{patient.node.store}: Permission denied"


def test_rights_of_others_are_taken_by_fix_alone(patient):
    """An examination changes nothing."""
    _world_readable(patient)
    words = ["doctor", "--config", str(patient.config.path), "--syncs", "10", "--json"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code in (1, 3)
    modes = {row["check"]: row for row in json.loads(done.stdout)}["hms.modes"]
    assert modes["verdict"] == "warn"
    assert patient.node.store.stat().st_mode & 0o777 == 0o755
    CliRunner().invoke(main, [*words, "--fix"])
    assert patient.node.store.stat().st_mode & 0o777 == 0o750
    assert list(patient.node.store.glob(".hms-probe-*")) == []


def test_a_lock_that_does_not_hold_is_found(tmp_path):
    """Two nodes at one store is the worst that can happen to it."""
    assert is_lock_held(tmp_path) == ""
    assert is_lock_held(tmp_path, lambda _fd, _how: None) == "two had the lock at once"


def test_a_sync_that_does_nothing_is_found_by_the_devices_counters(root, tmp_path):
    """A virtual machine's disk may say done to whatever is asked."""
    machine = Machine(root)
    said, code = honesty(tmp_path, 10, lambda _fd: None, machine)
    assert (said["verdict"], code) == ("the device has no counters", 3)
    stat = root / "sys/dev/block/8:1/stat"
    stat.write_text(" ".join(["5"] * 17))
    said, code = honesty(tmp_path, 10, lambda _fd: None, machine)
    assert (said["verdict"], code) == ("the device has not seen what was synced", 4)

    def seen(_fd):
        words = stat.read_text().split()
        words[4] = str(int(words[4]) + 1)
        stat.write_text(" ".join(words))

    said, code = honesty(tmp_path, 10, seen, machine)
    assert (said["device_writes"], code) == (2 * 10, 0)


@pytest.mark.parametrize("mode", ["latency", "locks"])
def test_a_probe_leaves_nothing_behind(tmp_path, mode):
    """It may be run beside a store."""
    done = CliRunner().invoke(
        main, ["store", "probe", str(tmp_path), mode, "--count", "10", "--json"]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)
    assert list(Path(tmp_path).iterdir()) == []


def test_the_limits_of_this_process_are_read():
    """Not only those that a test makes."""
    assert Machine().limit_of(resource.RLIMIT_NOFILE)[1] != 0
    assert Machine().mount_of(Path("/")) is not None


def test_an_estimate_counts_what_does_not_fit_as_paged():
    """Bodies leave memory, and 300 bytes of each stay."""
    said = estimate(Load(rate=100, size=1000, backlog=2_000_000))
    assert said["paged_messages"] > 0
    assert said["memory_bytes"] < 3 << 30
    assert estimate(Load(rate=100, size=1000, backlog=1000))["paged_messages"] == 0


def test_what_is_full_first_without_consumers_is_told():
    """Of a large disk the memory, of a small one the disk; without its size nobody knows."""
    load = Load(rate=1000, size=1000, backlog=10_000, retention_s=3600)
    assert estimate(load)["fills_first"] == "memory"
    small = estimate(replace(load, disk=4 << 30))
    assert (small["fills_first"], 0 < small["disk_full_s"] < small["memory_full_s"]) == (
        "disk",
        True,
    )
    assert estimate(replace(load, disk=1 << 42))["fills_first"] == "memory"
    assert estimate(replace(load, rate=0))["fills_first"] == ""
    assert estimate(replace(load, disk=1 << 20))["disk_full_s"] == 0


@pytest.mark.parametrize(
    ("words", "code"), [(["--disk", "100GiB"], 0), (["--disk", "5 tib"], 0), (["--disk", "x"], 2)]
)
def test_a_size_of_a_disk_has_a_unit(words, code):
    """What is none is refused, with an example."""
    line = ["capacity", "--rate", "500", "--size", "2000", *words, "--json"]
    done = CliRunner().invoke(main, line)
    assert done.exit_code == code
    assert ("disk_full_s" if not code else "64MiB") in done.output
