"""Checks of hms doctor: the node's configuration, keys, store, backups and dead letters."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hms.boot.counts import counted
from hms.boot.doctor.findings import Check, Finding, Patient, Verdict, found
from hms.boot.log_folder import log_folder
from hms.boot.monitoring.state_file import read_state, state_file_of
from hms.boot.supervise import find
from hms.errors.catalogue import BackupRefused
from hms.errors.tree import HmsError

__all__ = ["NODE_CHECKS"]

DAY_S = 86_400
KEY_DAYS = 365
DAYS_LOW, DAYS_OUT = 7, 1
HOUR_S = 3600.0
BACKUP_S = 93_600.0
SHIPPED_S = 300.0
"""Where backup_overdue_s is off."""


def _configuration(patient: Patient) -> Finding:
    """That it has no fault is known: nothing else could be looked at."""
    path, node = patient.config.path, patient.node
    value = f"{path}: {counted(len(patient.config.nodes), 'node')}, no fault"
    said = read_state(state_file_of(node))
    if said is None or find(node) is None or "began_s" not in said:
        return found("hms.configuration", Verdict.OK, value, "", "")
    began_s = time.time() - (time.monotonic() - said["began_s"])
    if path.stat().st_mtime <= began_s:
        return found("hms.configuration", Verdict.OK, value, "", "")
    value = f"{path} was changed after the node had read it"
    why = "the node works by what stood there before"
    return found("hms.configuration", Verdict.WARN, value, why, "hms down, then hms boot.")


def _keys(patient: Patient) -> Finding:
    """Files of keys by which the node proves who it is."""
    files = [patient.node.group.link_key_file]
    named = patient.config.listeners.items()
    files += [one.server_key_file for name, one in named if name in patient.node.listen]
    known = [file for file in files if file is not None]
    missing = [str(file) for file in known if not file.exists()]
    if missing:
        why = "the node does not boot"
        return found(
            "hms.keys", Verdict.FAIL, f"{', '.join(missing)} missing", why, "hms keys create"
        )
    days = {file: int((time.time() - file.stat().st_mtime) // DAY_S) for file in known}
    old = [file for file, age in days.items() if age > KEY_DAYS]
    value = ", ".join(f"{file} {counted(age, 'day')} old" for file, age in days.items())
    verdict = Verdict.WARN if old else Verdict.OK
    why = "who has copied a key in all that time can pass for the node"
    return found("hms.keys", verdict, value or "none", why, "hms keys create; see Rotate a key.")


def _store(patient: Patient) -> Finding:
    """The headers of all segments and how they follow; hms store verify reads each record."""
    from hms.store.journal.disk import REAL_DISK  # noqa: PLC0415 - loads the store
    from hms.store.journal.segment_walk import all_files  # noqa: PLC0415 - the same
    from hms.store.journal.store_examination import headers  # noqa: PLC0415 - the same

    node = patient.node
    if node.database is not None:
        return found("hms.store", Verdict.OK, "a database", "", "")
    folder = log_folder(node)
    files = all_files(REAL_DISK, folder) if folder.exists() else {}
    infos, unreadable = headers(REAL_DISK, files)
    numbers = [info.number for info in infos]
    gone = sorted(set(range(min(numbers), max(numbers))) - set(files)) if numbers else []
    faults = [f"{fault.fields['file']}: {fault.fields['detail']}" for fault in unreadable]
    faults += [f"segment {number} is not there" for number in gone if not _is_alone(files, number)]
    verdict = Verdict.FAIL if faults else Verdict.OK
    value = "; ".join(faults) or counted(len(files), "segment")
    why = "the node may not boot, or its history has a gap"
    return found("hms.store", verdict, value, why, "hms store verify; see Recover after a crash.")


def _is_alone(files: Mapping[int, Path], number: int) -> bool:
    """What lies before a gap was pinned: the rest of it was let go."""
    return all(file.suffix == ".pinned" for at, file in files.items() if at < number)


def _backup(patient: Patient) -> Finding:
    from hms.history.backups.backup_chain import backups_in  # noqa: PLC0415 - loads the store
    from hms.history.backups.backup_manifest import read_manifest  # noqa: PLC0415 - the same
    from hms.history.backups.shipped_mark import read_mark  # noqa: PLC0415 - the same

    name = "hms.backup"
    folder = patient.backups or patient.node.backups
    if folder is None:
        key = f"backups of [node.{patient.node.name}]"
        return found(name, Verdict.OK, f"not looked at: neither {key} nor --backups is set", "", "")
    why, cure = "what is not in a backup is lost with the disk", "hms backup create"
    verified_ms = 0
    for path in backups_in(folder):
        try:
            one = read_manifest(path)
        except BackupRefused as error:
            return found(name, Verdict.FAIL, str(error), why, cure)
        if one.node == patient.node.name and not one.is_shipped:
            verified_ms = max(verified_ms, one.created_ms)
    if not verified_ms:
        value = f"no verified backup of {patient.node.name} in {folder}"
        return found(name, Verdict.FAIL, value, why, cure)
    age_s = time.time() - verified_ms / 1000
    limit_s = patient.config.alerts.backup_overdue_s or BACKUP_S
    verdict = Verdict.WARN if age_s > limit_s else Verdict.OK
    value = f"the last one is {age_s / HOUR_S:.1f} h old"
    mark = read_mark(folder)
    if mark is None or mark.node != patient.node.name:
        return found(name, verdict, value, why, cure)
    behind_s = time.time() - mark.at_ms / 1000
    value = f"{value}; shipped up to {behind_s:,.0f} s ago"
    if find(patient.node) is None or behind_s <= (patient.config.alerts.ship_lag_s or SHIPPED_S):
        return found(name, verdict, value, why, cure)
    return found(name, Verdict.WARN, value, why, "Start hms backup ship again, or look at its log.")


def _letters(patient: Patient) -> Finding:
    """Each queue of dead letters, as the node has it now."""
    name = "hms.dead_letters"
    if find(patient.node) is None:
        return found(name, Verdict.OK, "not running", "", "")
    try:
        rows: list[dict[str, Any]] = patient.ask(patient.node.name, "dlq.queues")
    except HmsError as error:
        return found(name, Verdict.WARN, str(error), "it could not be asked", "Log in for it.")
    full = [f"{row['name']} {row['waiting']}" for row in rows if row["waiting"]]
    names = ", ".join(row["name"] for row in rows)
    verdict = Verdict.WARN if full else Verdict.OK
    why = "messages that nobody could work on wait for somebody"
    value = ", ".join(full) or f"none waits in {names}"
    return found(name, verdict, value, why, "hms dlq list; hms dlq return")


def _disk_days(patient: Patient) -> Finding:
    """From what the store has grown by in the last day, and what history_bytes lets it have."""
    node, now_s = patient.node, time.time()
    files = [(one.st_size, one.st_mtime) for one in _stats(log_folder(node))]
    fresh = [(size, at) for size, at in files if now_s - at < DAY_S]
    span_s = max((now_s - at for _, at in fresh), default=0.0)
    rate = sum(size for size, _ in fresh) / max(span_s, HOUR_S)
    free = patient.machine.free_bytes(patient.store)
    taken = sum(size for size, _ in files)
    may_take = node.history_bytes + (node.max_log_bytes or 0)
    why = "the log and its history fill the disk, and sending is refused then"
    if not rate or may_take - taken < free:
        value = "nothing was written" if not rate else "what history_bytes allows fits"
        return found("hms.disk_days", Verdict.OK, value, why, "")
    days = free / rate / DAY_S
    verdict = Verdict.OK
    if days < DAYS_LOW:
        verdict = Verdict.FAIL if days < DAYS_OUT else Verdict.WARN
    value = f"{days:.1f} days at {rate * DAY_S / (1 << 30):.2f} GiB a day"
    cure = "Lower history_bytes, set max_log_bytes, or add space."
    return found("hms.disk_days", verdict, value, why, cure)


def _stats(folder: Path) -> list[Any]:
    """Of the files in a store; what is let go meanwhile is left out."""
    found_ = []
    for path in folder.glob("*.*"):
        try:
            found_.append(path.stat())
        except FileNotFoundError:
            continue
    return found_


NODE_CHECKS: Mapping[str, Check] = {
    "hms.configuration": _configuration,
    "hms.keys": _keys,
    "hms.store": _store,
    "hms.backup": _backup,
    "hms.dead_letters": _letters,
    "hms.disk_days": _disk_days,
}
