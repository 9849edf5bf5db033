"""Which file messages are taken, and which files are given up (F-F6); see file_references.py."""

from collections.abc import Iterator, Sequence

from hms.engine.effects import Effects, FileDropped
from hms.engine.session.session_objects import PendingBatch, Producer
from hms.engine.state import State
from hms.errors.catalogue import FileUnknown, InvalidArgument, NotSupported
from hms.wire.packed_messages import (
    KIND_FILE,
    NODE_FILE,
    Row,
    decode_head,
    slice_payloads,
    unpack_rows,
)


def check_files(
    state: State, producer: Producer, rows: Sequence[Row], pack: memoryview, is_persistent: bool
) -> None:
    """Refuse messages whose files are not there, or would not go where they may go."""
    if state.is_global(producer.destination.name):
        instead = "Use a queue that is not GLOBAL: files stay at their node."
        raise NotSupported(feature="a file message in a global queue", instead=instead)
    for file in _files_in(rows, pack):
        if file not in state.files.since_ms:
            raise FileUnknown(file=file or "without a name")
    if not is_persistent:
        detail = "a file message is persistent: its file is stored in any case"
        raise InvalidArgument(what="persistent", detail=detail)


def _files_in(rows: Sequence[Row], pack: bytes | memoryview) -> Iterator[str]:
    for row, payload in zip(rows, slice_payloads(pack, rows), strict=True):
        if row.kind == KIND_FILE:
            file = decode_head(payload[: row.head_bytes]).node.get(NODE_FILE)
            yield file if isinstance(file, str) else ""


def drop_unnamed(state: State, gone: Sequence[str], fx: Effects) -> None:
    """Files whose last message is gone are given up, but not what a transaction may yet name."""
    files = state.files
    held = _in_transactions(state) if gone else set()
    for file in gone:
        if files.since_ms.get(file) and file not in held:
            del files.since_ms[file]
            fx.out.append(FileDropped(file))
            fx.must_wait = True


def drop_overdue(state: State, fx: Effects) -> None:
    """Files that nobody has named for too long are given up."""
    until_ms = state.now_ms - state.settings.file_life_ms
    overdue = [f for f, since_ms in state.files.since_ms.items() if 0 < since_ms <= until_ms]
    if overdue:
        drop_unnamed(state, overdue, fx)


def _in_transactions(state: State) -> set[str]:
    """Files that messages name which are not committed yet, or wait for room."""
    batches: list[PendingBatch] = []
    for connection in state.connections.values():
        for session in connection.sessions.values():
            batches += session.work.sends
    for branch in state.branches.by_xid.values():
        batches += branch.work.sends
    packs = [(batch.pack, batch.count) for batch in batches]
    for line in state.blocked.lines.values():
        for waiting in line:
            packs += waiting.packs()
    found: set[str] = set()
    for pack, count in packs:
        found.update(_files_in(unpack_rows(pack, count), pack))
    return found
