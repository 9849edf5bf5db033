"""Group checks: what has no place in an order or a group, before anything has changed."""

from collections.abc import Sequence

from hms.engine.groups.global_order import check_order, heads_of, is_ordered
from hms.engine.queue.destinations import Queue, Topic
from hms.errors.catalogue import MessageFormatError
from hms.wire.packed_messages import Head, Row, decode_head


def check_ordering(target: Queue | Topic, rows: Sequence[Row], pack: memoryview) -> None:
    """SortKeyMismatch, GroupMessageInvalid, and what check_order() raises."""
    if is_ordered(pack, len(rows)):
        check_order(rows, pack)
    if isinstance(target, Queue):
        _check_queue(target, rows, pack)


def _check_queue(queue: Queue, rows: Sequence[Row], pack: memoryview) -> None:
    line = queue.line
    gathering = line.groups.gathering if line.groups is not None else None
    if line.sort is None and gathering is None:
        return
    heads = [_readable(data) for data in heads_of(rows, pack) if data]
    if line.sort is not None:
        line.sort.check(queue.name, heads)
    if gathering is not None:
        gathering.check(queue.name, heads)


def _readable(data: bytes) -> Head:
    """An unreadable head counts as empty, as where it waits."""
    try:
        return decode_head(data)
    except MessageFormatError:
        return Head()
