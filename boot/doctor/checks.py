"""The checks of hms doctor: each says ok, warn or fail, what it found, why it matters, the cure.

They change nothing; modes alone can be set right, by --fix.
"""

import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from itertools import zip_longest

from hms.boot.counts import counted
from hms.boot.doctor.disk_probe import folder_of, is_lock_held, measure, percentile
from hms.boot.doctor.findings import Check, Finding, Patient, Verdict, found
from hms.boot.doctor.machine import mode_of
from hms.boot.doctor.node_checks import NODE_CHECKS
from hms.boot.doctor.place_checks import PLACE_CHECKS
from hms.boot.memory_limit import OWN_BYTES
from hms.boot.monitoring.health import health_of
from hms.boot.security_file import load_security
from hms.boot.supervise import find
from hms.errors.tree import HmsError

__all__ = ["CHECKS", "Finding", "Patient", "Verdict", "examine"]

SLOW_MS = 50.0
DEVICE_US = 20.0
"""No device that keeps what it has through a power cut syncs faster; one with a protected cache
comes near."""
LOW_PERCENT = 10
DESCRIPTORS_OWN = 4352
PROCESSES_MIN = 256
LIBZMQ = (4, 3, 4)
PYTHON = (3, 11)
OTHERS = 0o007
NO_FLUSH = ("nobarrier", "barrier=0")
VOLATILE = ("tmpfs", "ramfs", "overlay", "devtmpfs")
DOUBTFUL = ("nfs", "cifs", "smb3", "ecryptfs", "fuse", "9p")

CHECKS: dict[str, Check] = {}


def _check(name: str) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        CHECKS[name] = check
        return check

    return add


def examine(patient: Patient) -> Iterator[Finding]:
    """All checks, in order; one that cannot be done says which call failed."""
    for name, check in CHECKS.items():
        try:
            finding = check(patient)
        except OSError as fault:
            where = fault.filename or patient.store
            text = f"{where}: {fault.strerror}"
            finding = found(
                name, Verdict.FAIL, text, "it could not be looked at", "Run as the node."
            )
        if finding is not None:
            yield finding


@_check("disk.filesystem")
def _filesystem(patient: Patient) -> Finding:
    mount = patient.machine.mount_of(patient.node.store)
    kind = "unknown" if mount is None else mount.kind
    verdict = Verdict.OK
    if kind in VOLATILE:
        verdict = Verdict.FAIL
    elif kind.startswith(DOUBTFUL) or mount is None:
        verdict = Verdict.WARN
    options = "" if mount is None else f", {','.join(mount.options)}"
    why = "what is synced there is not kept, or its locks do not hold"
    return found("disk.filesystem", verdict, f"{kind}{options}", why, "Use ext4 or xfs.")


@_check("disk.mount_options")
def _mount_options(patient: Patient) -> Finding:
    mount = patient.machine.mount_of(patient.node.store)
    options = () if mount is None else mount.options
    bad = [one for one in options if one in ("ro", *NO_FLUSH)]
    verdict = Verdict.FAIL if bad else Verdict.OK
    why = "it cannot be written, or a sync does not reach the device"
    return found("disk.mount_options", verdict, ",".join(bad or options), why, "Mount it anew.")


@_check("disk.space")
def _space(patient: Patient) -> Finding:
    node, usage = patient.node, shutil.disk_usage(patient.store)
    wanted = node.history_bytes + (node.max_log_bytes or 8 * node.segment_bytes)
    percent = 100 * usage.free // usage.total
    verdict = Verdict.OK
    if usage.free < 8 * node.segment_bytes:
        verdict = Verdict.FAIL
    elif usage.free < wanted or percent < LOW_PERCENT:
        verdict = Verdict.WARN
    value = f"{usage.free >> 30} GiB of {usage.total >> 30} GiB free, {wanted >> 30} GiB wanted"
    why = "log and history may fill the disk, and sending is refused then"
    return found("disk.space", verdict, value, why, "Lower history_bytes, set max_log_bytes.")


@_check("disk.write_cache")
def _write_cache(patient: Patient) -> Finding | None:
    mount = patient.machine.mount_of(patient.node.store)
    path = "" if mount is None else f"/sys/dev/block/{mount.device}/queue/write_cache"
    cache = patient.machine.text(path) if path else ""
    if not cache:
        return None
    options = () if mount is None else mount.options
    is_kept = cache == "write back" and any(one in NO_FLUSH for one in options)
    verdict = Verdict.FAIL if is_kept else Verdict.OK
    why = "what was synced stays in the device's cache, and a power cut loses it"
    return found("disk.write_cache", verdict, cache, why, "Mount it with barriers.")


@_check("disk.sync")
def _sync(patient: Patient) -> Finding:
    """200 syncs: how long they take, and whether the device has seen them."""
    mount = patient.machine.mount_of(patient.node.store)
    device = "" if mount is None else mount.device
    before = patient.machine.block_counts(device)
    with folder_of(patient.store) as folder:
        values = measure(folder, patient.syncs, patient.sync)[0].values
    after = patient.machine.block_counts(device)
    median, p99 = percentile(values, 0.5), percentile(values, 0.99)
    value = f"{patient.syncs} syncs: 50 % {median:.2f} ms, 99 % {p99:.2f} ms"
    if before is not None and after is not None:
        writes = after[0] - before[0]
        value += f", {writes} writes of the device"
        if writes < patient.syncs:  # it is twice as many, of appends and of what is overwritten
            why = "the device has not seen what was synced: a power cut loses what was confirmed"
            return found("disk.sync", Verdict.FAIL, value, why, "Find who swallows the syncs.")
    if median * 1000 < DEVICE_US:
        why = "that is faster than a device without a protected cache can be"
        return found("disk.sync", Verdict.WARN, value, why, "hms store probe DIR honesty")
    verdict = Verdict.WARN if p99 > SLOW_MS else Verdict.OK
    why = "each persistent message waits for one"
    return found("disk.sync", verdict, value, why, "Use another disk, or one alone.")


@_check("disk.lock")
def _lock(patient: Patient) -> Finding:
    with folder_of(patient.store) as folder:
        fault = is_lock_held(folder)
    verdict = Verdict.FAIL if fault else Verdict.OK
    why = "two nodes could write one store"
    return found("disk.lock", verdict, fault or "holds", why, "Use a local file system.")


@_check("kernel.open_files")
def _open_files(patient: Patient) -> Finding:
    _, hard = patient.machine.limit_of(resource.RLIMIT_NOFILE)
    wanted = int(patient.node.max_connections / 0.8) + DESCRIPTORS_OWN
    is_enough = hard == resource.RLIM_INFINITY or hard >= wanted
    verdict = Verdict.OK if is_enough else Verdict.WARN
    value = f"{hard} of {wanted} for max_connections = {patient.node.max_connections}"
    why = "fewer connections than configured fit"
    return found("kernel.open_files", verdict, value, why, "Raise LimitNOFILE or ulimit -Hn.")


@_check("kernel.processes")
def _processes(patient: Patient) -> Finding:
    soft, _ = patient.machine.limit_of(resource.RLIMIT_NPROC)
    is_enough = soft == resource.RLIM_INFINITY or soft >= PROCESSES_MIN
    verdict = Verdict.OK if is_enough else Verdict.WARN
    why = "threads and server processes count"
    return found("kernel.processes", verdict, str(soft), why, "Raise LimitNPROC or ulimit -u.")


@_check("kernel.overcommit")
def _overcommit(patient: Patient) -> Finding:
    mode = patient.machine.text("/proc/sys/vm/overcommit_memory")
    verdict = Verdict.WARN if mode == "2" else Verdict.OK
    why = "a server process that forks may be refused memory that it does not use"
    return found("kernel.overcommit", verdict, mode or "unknown", why, "vm.overcommit_memory = 0")


@_check("kernel.swap")
def _swap(patient: Patient) -> Finding:
    devices = patient.machine.text("/proc/swaps").splitlines()[1:]
    swappiness = patient.machine.number("/proc/sys/vm/swappiness") or 0
    is_bad = bool(devices) and swappiness > 10  # noqa: PLR2004 - the usual advice
    value = f"{counted(len(devices), 'device')}, swappiness {swappiness}"
    why = "messages that wait would be swapped out, and delivered slowly"
    verdict = Verdict.WARN if is_bad else Verdict.OK
    return found("kernel.swap", verdict, value, why, "vm.swappiness = 1")


@_check("kernel.huge_pages")
def _huge_pages(patient: Patient) -> Finding:
    text = patient.machine.text("/sys/kernel/mm/transparent_hugepage/enabled")
    chosen = text.partition("[")[2].partition("]")[0] or "unknown"
    verdict = Verdict.WARN if chosen == "always" else Verdict.OK
    why = "memory grows in steps of 2 MiB, and compaction stops threads"
    return found("kernel.huge_pages", verdict, chosen, why, "Set it to madvise.")


@_check("kernel.dirty")
def _dirty(patient: Patient) -> Finding:
    ratio = patient.machine.number("/proc/sys/vm/dirty_ratio") or 0
    verdict = Verdict.WARN if ratio > 40 else Verdict.OK  # noqa: PLR2004 - twice the default
    why = "a sync may have to wait for gigabytes of others"
    return found("kernel.dirty", verdict, f"{ratio} %", why, "vm.dirty_ratio = 20")


@_check("kernel.cgroup_memory")
def _cgroup_memory(patient: Patient) -> Finding:
    limit = patient.machine.number("/sys/fs/cgroup/memory.max")
    wanted = patient.node.max_memory_bytes + OWN_BYTES
    verdict = Verdict.FAIL if limit is not None and limit < wanted else Verdict.OK
    value = "no limit" if limit is None else f"{limit >> 20} MiB, {wanted >> 20} MiB wanted"
    why = "the kernel ends the node before it can refuse messages"
    return found("kernel.cgroup_memory", verdict, value, why, "Lower max_memory_bytes.")


@_check("clock.synchronised")
def _clock(patient: Patient) -> Finding:
    synced = patient.machine.is_clock_synced()
    verdict = Verdict.OK if synced else Verdict.WARN
    value = {True: "yes", False: "no", None: "cannot be asked"}[synced]
    why = "expiry and schedules follow the clock, and nodes compare theirs"
    return found("clock.synchronised", verdict, value, why, "Run chrony or systemd-timesyncd.")


@_check("network.addresses")
def _addresses(patient: Patient) -> Finding:
    faults = []
    is_ours = find(patient.node) is not None
    for address in patient.node.listen:
        if address.startswith("tcp://") and not is_ours:
            host, _, port = address.removeprefix("tcp://").rpartition(":")
            why = patient.machine.why_not_bindable(host.strip("[]"), int(port))
            faults += [f"{address}: {why}"] if why else []
    verdict = Verdict.FAIL if faults else Verdict.OK
    value = "; ".join(faults) or ("the node has them" if is_ours else "free")
    why = "the node could not listen"
    return found("network.addresses", verdict, value, why, "Another port, or end who has it.")


@_check("network.somaxconn")
def _somaxconn(patient: Patient) -> Finding:
    most = patient.machine.number("/proc/sys/net/core/somaxconn")
    verdict = Verdict.WARN if most is not None and most < 512 else Verdict.OK  # noqa: PLR2004
    why = "clients that all come back at once are dropped and wait"
    value = "unknown" if most is None else str(most)
    return found("network.somaxconn", verdict, value, why, "net.core.somaxconn = 4096")


@_check("software.python")
def _python(patient: Patient) -> Finding:
    said = patient.machine.versions.get("python", ".".join(map(str, sys.version_info[:3])))
    verdict = Verdict.OK if _numbers(said) >= PYTHON else Verdict.FAIL
    return found("software.python", verdict, said, "HMS needs 3.11", "Install a newer Python.")


@_check("software.libzmq")
def _libzmq(patient: Patient) -> Finding:
    import zmq  # noqa: PLC0415 - the other checks need none

    said = patient.machine.versions.get("libzmq", zmq.zmq_version())
    verdict = Verdict.OK if _numbers(said) >= LIBZMQ else Verdict.FAIL
    return found("software.libzmq", verdict, said, "faults that were mended", "Update pyzmq.")


@_check("software.native")
def _native(patient: Patient) -> Finding:
    said = patient.machine.versions.get("native")
    if said is None:
        from hms.server import accept_guard  # noqa: PLC0415 - as above
        from hms.wire import packed_messages  # noqa: PLC0415

        said = "yes" if packed_messages.IS_NATIVE and accept_guard.is_built else "no"
    verdict = Verdict.OK if said == "yes" else Verdict.WARN
    why = "packs are taken apart slowly; a crowd at a local socket can end the node"
    return found("software.native", verdict, said, why, "Install with a C compiler.")


@_check("software.packages")
def _packages(patient: Patient) -> Finding:
    """Each is there, and no older than this release asks for."""
    faults, known = [], []
    least = _least_versions(patient.machine.needed())
    wanted = ["pyzmq", "msgspec", "APScheduler", "click", "cronsim"]
    wanted += ["argon2-cffi"] if patient.node.security is not None else []
    for name in wanted:
        said = patient.machine.versions.get(name, _version_of(name))
        if not said:
            faults.append(f"{name} is missing")
        elif _is_older(said, least.get(name, "")):
            faults.append(f"{name} is {said}, and {least[name]} is needed")
        known.append(f"{name} {said}")
    verdict = Verdict.FAIL if faults else Verdict.OK
    why, cure = "HMS does not work without them", "pip install them."
    return found("software.packages", verdict, ", ".join(faults or known), why, cure)


def _version_of(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _least_versions(needed: list[str]) -> dict[str, str]:
    both = [text.partition(";")[0].partition(">=") for text in needed]
    return {name.strip(): after.partition(",")[0].strip() for name, _, after in both if after}


def _is_older(said: str, least: str) -> bool:
    both = list(zip_longest(_numbers(said), _numbers(least), fillvalue=0))
    return [a for a, _ in both] < [b for _, b in both]


@_check("hms.modes")
def _modes(patient: Patient) -> Finding:
    node = patient.node
    paths = [node.store, node.runtime, *filter(None, (node.security, node.group.link_key_file))]
    paths += [one.server_key_file for one in patient.config.listeners.values()]
    open_ones = tuple(path for path in paths if (mode_of(path) or 0) & OTHERS)
    verdict = Verdict.WARN if open_ones else Verdict.OK
    value = ", ".join(map(str, open_ones)) or "others have no rights"
    why = "others on this machine may read messages or keys"
    said = found("hms.modes", verdict, value, why, "hms doctor --fix, or chmod o= them.")
    return Finding(said.check, said.verdict, said.value, said.why, said.cure, open_ones)


@_check("hms.health")
def _health(patient: Patient) -> Finding:
    health = health_of(patient.node)
    if health.state == "down":
        return found("hms.health", Verdict.OK, "not running", "", "")
    verdict = Verdict.OK
    if not health.is_live:
        verdict = Verdict.FAIL
    elif health.alerts or not health.is_ready:
        verdict = Verdict.WARN
    return found("hms.health", verdict, health.text, "see hms alert list", "See the alerts.")


@_check("hms.security")
def _security(patient: Patient) -> Finding:
    path = patient.node.security
    if path is None:
        said = "open: the node trusts every process that reaches its addresses"
        return found("hms.security", Verdict.OK, said, "", "")
    try:
        document = load_security(path)
    except HmsError as error:
        why = "the node does not boot with it"
        return found("hms.security", Verdict.FAIL, str(error), why, "hms security check")
    said = counted(len(document.user), "user")
    for alert in health_of(patient.node).alerts:
        if alert["alert"] == "addresses_locked":
            why = "clients from there that have never logged in are kept out, too"
            cure = "hms security locked; hms security unlock ADDRESS"
            return found("hms.security", Verdict.WARN, f"{said}; {alert['text']}", why, cure)
    return found("hms.security", Verdict.OK, said, "", "")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(".") if word.isdigit())


AREAS = ("disk", "kernel", "clock", "network", "software", "hms")
CHECKS.update({**PLACE_CHECKS, **NODE_CHECKS})
for _name in sorted(CHECKS, key=lambda name: AREAS.index(name.partition(".")[0])):
    CHECKS[_name] = CHECKS.pop(_name)
