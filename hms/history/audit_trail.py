"""The records of a store's audit, in their order: what is kept of segments that are gone, and what
stands in the log and its history; or the table of a database."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from hms.errors.catalogue import StoreCorrupt
from hms.history.tables import audit_of_tables
from hms.records import NodeEvent, RecordType, decode_node_event
from hms.records.audit import AuditEntry, decode_audit
from hms.store.journal.audit_files import audit_files, audit_payloads
from hms.store.journal.disk import REAL_DISK
from hms.store.journal.reader import list_segments, read_segment
from hms.store.journal.segment_walk import AUDIT_SUFFIX, survey_alone

__all__ = ["configurations_of_log", "decoded", "entries_of_log", "entries_of_tables"]


def entries_of_log(folder: Path, newest: int | None = None) -> Iterator[AuditEntry]:
    """newest: of so many segments only. A segment that is pinned, alone before others that are
    gone, stands between their files. StoreCorrupt, StoreUnavailable."""
    every = list_segments(folder)
    if newest is None:
        alone = survey_alone(REAL_DISK, folder)
        files = [*audit_files(REAL_DISK, folder), *(info.file for info in (*alone, *every))]
        files = sorted(files, key=lambda file: file.stem)
    else:
        files = [info.file for info in every[-newest:]]
    for file in files:
        if file.suffix == AUDIT_SUFFIX:
            for at, kept in enumerate(audit_payloads(REAL_DISK, file)):
                yield decoded(kept, f"{file}, record {at + 1}")
            continue
        for _, kind, _, payload, _ in read_segment(file):
            if kind == RecordType.AUDIT:
                yield decoded(payload, str(file))


def configurations_of_log(folder: Path) -> Iterator[NodeEvent]:
    """When other copies of a replicated log counted, or another one led; of log and history."""
    for info in list_segments(folder):
        for _, kind, _, payload, _ in read_segment(info.file):
            if kind == RecordType.NODE and (event := decode_node_event(payload)).copies:
                yield event


def entries_of_tables(
    address: str, password: str | None = None, above: int = 0
) -> Iterator[AuditEntry]:
    """Those with a higher number than that. address: as of a history. DatabaseUnavailable."""
    for one in audit_of_tables(address, password, above):
        yield decoded(one, address.rpartition("@")[2])


def decoded(payload: bytes | memoryview, where: str) -> AuditEntry:
    """A record of the audit; StoreCorrupt that says where it stands."""
    try:
        return decode_audit(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
        detail = f"a record of the audit cannot be read: {fault}"
        raise StoreCorrupt(file=where, offset=0, lsn=0, detail=detail) from fault
