"""Checks of hms doctor: folders, clocks, the ways to other nodes, Java."""

import os
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from hms.boot.doctor.disk_probe import folder_of
from hms.boot.doctor.findings import Check, Finding, Patient, Verdict, found
from hms.boot.entries import Node
from hms.boot.log_folder import log_folder
from hms.boot.monitoring.health import health_of
from hms.errors.tree import HmsError

__all__ = ["PLACE_CHECKS"]

LOG_SHARE = 10
"""The files of the node's log may take that part of the free space of the store's disk."""
LOG_BYTES = 11 * (64 << 20)
ENTROPY_MIN = 128
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Seoul")
AHEAD_S = 2.0
DRIFT_S, DRIFT_MAX_S = 0.25, 0.005
OFFSET_MAX_S = 1.0
MTU_MIN = 1280
"""Every link of IPv6 takes that much; less is a tunnel that is set up wrongly."""
IDLE_MAX_S = 300
"""Firewalls forget a connection on which nothing was sent for so long."""
JAVA = 17


def _directory_sync(patient: Patient) -> Finding:
    name, fault = "disk.directory_sync", ""
    with folder_of(patient.store) as folder:
        (folder / "new").touch()
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            (folder / "new").rename(folder / "named")
            patient.sync_folder(at)
        except OSError as error:
            fault = f"fsync of a folder: {error.strerror}"
        finally:
            os.close(at)
    verdict = Verdict.FAIL if fault else Verdict.OK
    why = "after a power cut a new segment may have no name, and is lost"
    return found(name, verdict, fault or "works", why, "Use ext4 or xfs.")


def _log_device(patient: Patient) -> Finding:
    """Where the node's own log lies is no matter, unless it can take the room of the store."""
    machine, node = patient.machine, patient.node
    store, log = machine.mount_of(node.store), machine.mount_of(node.log_file)
    is_one = store is not None and log is not None and store.device == log.device
    free = machine.free_bytes(patient.store)
    verdict = Verdict.WARN if is_one and free < LOG_SHARE * LOG_BYTES else Verdict.OK
    value = "the store's device" if is_one else "another device than the store's"
    why = f"files of {LOG_BYTES >> 20} MiB may take the room of {free >> 20} MiB that is left"
    return found("disk.log_device", verdict, value, why, "Set log_file to another device.")


def _entropy(patient: Patient) -> Finding:
    bits = patient.machine.number("/proc/sys/kernel/random/entropy_avail")
    verdict = Verdict.WARN if bits is not None and bits < ENTROPY_MIN else Verdict.OK
    value = "unknown" if bits is None else f"{bits} bits"
    why = "keys and tokens wait for it at a boot"
    return found("kernel.entropy", verdict, value, why, "Give the machine a virtio-rng device.")


def _time_zones(patient: Patient) -> Finding:
    missing = [zone for zone in ZONES if not patient.machine.has_zone(zone)]
    verdict = Verdict.WARN if missing else Verdict.OK
    why = "schedules of these time zones are refused"
    value = f"{', '.join(missing)} missing" if missing else "there"
    return found("kernel.time_zones", verdict, value, why, "apt-get install tzdata")


def _steps(patient: Patient) -> Finding:
    """What was written has a time behind us, unless the clock went back."""
    newest = max((_changed_s(path) for path in log_folder(patient.node).glob("*.log")), default=0.0)
    ahead_s = newest - patient.machine.clocks()[0]
    why = "the node's time stands still until the clock is there again: nothing expires or is due"
    if ahead_s > AHEAD_S:
        value = f"the store was written {ahead_s:.0f} s from now"
        return found("clock.steps", Verdict.FAIL, value, why, "Set the clock; see NTP.")
    for alert in health_of(patient.node).alerts:
        if alert["alert"] == "clock_stepped":
            return found("clock.steps", Verdict.WARN, alert["text"], why, "Let NTP slew it.")
    return found("clock.steps", Verdict.OK, "none", why, "")


def _changed_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _monotonic(patient: Patient) -> Finding:
    """Both clocks over the same quarter of a second; the middle one of three."""
    clocks, drifts = patient.machine.clocks, []
    for _ in range(3):
        wall, even = clocks()
        patient.machine.pause(DRIFT_S)
        wall_later, even_later = clocks()
        drifts.append((wall_later - wall) - (even_later - even))
    drift_s = median(drifts)
    verdict = Verdict.WARN if abs(drift_s) > DRIFT_MAX_S else Verdict.OK
    value = f"{1000 * drift_s:+.1f} ms in {1000 * DRIFT_S:.0f} ms"
    why = "the wall clock does not run evenly: leases and expiry follow different times"
    return found("clock.monotonic", verdict, value, why, "See the clock source and NTP.")


def _others(patient: Patient) -> list[Node]:
    """The other nodes of its cluster."""
    node = patient.node
    if node.group.hmsport is None:
        return []
    known = patient.config.nodes.values()
    return [one for one in known if one.group.hmsport is not None and one.name != node.name]


def _peers(patient: Patient) -> Finding:
    """How far the clocks of the other nodes are from this one."""
    name, others = "clock.peers", _others(patient)
    if not others:
        return found(name, Verdict.OK, "it is in no cluster", "", "")
    said, verdict = [], Verdict.OK
    for other in others:
        before = patient.machine.clocks()[0]
        try:
            told: Any = patient.ask(other.name, "metrics.show")
        except HmsError as error:
            said.append(f"{other.name}: {error}")
            verdict = Verdict.WARN
            continue
        after = patient.machine.clocks()[0]
        offset_s = told["now_ms"] / 1000 - (before + after) / 2
        said.append(f"{other.name} {offset_s:+.3f} s")
        if abs(offset_s) > OFFSET_MAX_S + (after - before) / 2:
            verdict = Verdict.WARN
    why = "messages expire at another time at each node, or that could not be seen"
    return found(name, verdict, ", ".join(said), why, "Run chrony at all of them, and boot them.")


def _hosts(patient: Patient) -> list[str]:
    """All hosts by name or number that the configuration of the node leads to."""
    config, node = patient.config, patient.node
    known = (config.listeners[a].address if a in config.listeners else a for a in node.listen)
    hosts = [_host(address) for address in known if address.startswith("tcp://")]
    hosts += [one.group.link_host for one in (node, *_others(patient)) if one.group.hmsport]
    return list(dict.fromkeys(hosts))


def _host(address: str) -> str:
    return address.removeprefix("tcp://").rpartition(":")[0].strip("[]")


def _names(patient: Patient) -> Finding:
    faults = [
        f"{host}: {why}" for host in _hosts(patient) if (why := patient.machine.why_unknown(host))
    ]
    verdict = Verdict.FAIL if faults else Verdict.OK
    value = "; ".join(faults) or ", ".join(_hosts(patient)) or "no name is needed"
    why = "the node does not listen there, or does not find that node"
    return found("network.names", verdict, value, why, "See /etc/hosts and the DNS.")


def _mtu(patient: Patient) -> Finding:
    hosts = [one.group.link_host for one in _others(patient)]
    known = {host: patient.machine.mtu_to(host) for host in hosts}
    small = [host for host, mtu in known.items() if 0 < mtu < MTU_MIN]
    verdict = Verdict.WARN if small else Verdict.OK
    value = ", ".join(f"{host} {mtu or 'unknown'}" for host, mtu in known.items())
    why = "a frame of 1 MiB takes thousands of packets, and one that is too large may vanish"
    return found("network.mtu", verdict, value or "no other node", why, "Set the MTU of the way.")


def _keepalive(patient: Patient) -> Finding:
    kernel_s = patient.machine.number("/proc/sys/net/ipv4/tcp_keepalive_time") or 7200
    quiet_s = min(float(kernel_s), patient.node.heartbeat_s)
    if patient.node.group.hmsport is not None:
        quiet_s = max(quiet_s, min(float(kernel_s), patient.node.group.hmsheartbeat))
    verdict = Verdict.WARN if quiet_s > IDLE_MAX_S else Verdict.OK
    value = f"something is sent every {quiet_s:g} s"
    why = "a firewall forgets a connection that is quiet for so long, and cuts it without a word"
    return found("network.keepalive", verdict, value, why, "Lower heartbeat_s and HMSHEARTBEAT.")


def _java(patient: Patient) -> Finding:
    name, told = "software.java", patient.machine.versions.get("java")
    number = int(told) if told is not None else patient.machine.java_version()
    verdict = Verdict.OK if number >= JAVA else Verdict.WARN
    value = f"Java {number}" if number else "none"
    why = "Spark needs Java 17 to read the history; nothing else does"
    return found(name, verdict, value, why, "pip install hybrid-messaging[java], or JAVA_HOME.")


PLACE_CHECKS: Mapping[str, Check] = {
    "disk.directory_sync": _directory_sync,
    "disk.log_device": _log_device,
    "kernel.entropy": _entropy,
    "kernel.time_zones": _time_zones,
    "clock.steps": _steps,
    "clock.monotonic": _monotonic,
    "clock.peers": _peers,
    "network.names": _names,
    "network.mtu": _mtu,
    "network.keepalive": _keepalive,
    "software.java": _java,
}
