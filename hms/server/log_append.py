"""Log append: records of the engine go to the store, and their owners learn where they lie."""

from collections.abc import Iterable

from hms.records import Record
from hms.store.interface import Store


def append_records(store: Store, records: Iterable[Record]) -> None:
    """Put records in line, in order; under the engine's lock, or before anybody else is there."""
    for record in records:
        position = store.append(record.type, record.events, record.parts)
        for log_position, offset in record.log_positions:
            log_position.placed(position + offset)
