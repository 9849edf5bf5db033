"""Where a store of each kind lies, and small records about one queue."""

import contextlib
import dataclasses
import sqlite3

import msgspec

from hms.errors.catalogue import StoreLocked
from hms.records import (
    Definition,
    Placement,
    RecordType,
    Sent,
    Snapshot,
    decode_moved,
    decode_sent,
    dictionary,
    ranges,
    sent,
)
from hms.store.database import DatabaseSettings, open_database
from hms.store.journal import Journal
from hms.wire.packed_messages import ROW, pack_messages
from tests.support.waiting import wait_until

NODE_UID = 77
KINDS = ("journal", "sqlite", "postgresql")
DATABASE = DatabaseSettings(batches_max=4, entries_max=8)
SHORT = dataclasses.replace(DATABASE, lease_s=1.0)
"""With a lease that a test can wait for."""


class Place:
    """Where a store of one kind lies, opened as often as a test likes."""

    def __init__(self, kind, folder, server=None):
        self.kind, self.folder, self.server = kind, folder, server
        self.prefix = server.new_prefix() if server else "t_"
        self.address = server.url if server else f"sqlite:{folder / 'store.db'}"

    def open(self, settings=DATABASE, node_uid=NODE_UID):
        if self.kind == "journal":
            return Journal.open(self.folder / "log", segment_bytes=64 << 20, node_uid=node_uid)
        return open_database(
            self.address, table_prefix=self.prefix, node_uid=node_uid, settings=settings
        )

    def started(self, settings=DATABASE):
        """A store with one queue, ready to be written."""
        store = self.open(settings)
        records = list(store.recover())
        store.start(lambda: msgspec.structs.astuple(dictionary(Snapshot(ONE_QUEUE, 0, 2)))[:3])
        store.commit()
        return store, records

    def numbers(self):
        """Which messages of the queue a boot finds."""
        store, records = self.started()
        store.close()
        return numbers_in(records)

    def count(self, table):
        """How many rows a table has."""
        ((found,),) = self.ask(f"SELECT count(*) FROM {{p}}{table}")
        return found

    def ask(self, query):
        """All rows of a query over the tables; {p} is their prefix."""
        text = query.format(p=self.prefix)
        if self.server:
            return self.server.ask(text)
        with contextlib.closing(sqlite3.connect(self.folder / "store.db")) as session:
            rows = session.execute(text).fetchall()
            session.commit()
            return rows


ONE_QUEUE = [Definition(1, "queue", "a")]
FIRST_ID = (1 << 40) + 1


def batch(number, count, body, is_forwarded=False):
    """A SENT record: the messages from FIRST_ID + number on, in the queue."""
    pack = pack_messages([(ROW.pack(0, len(body), 0, 0, 4, 0, 0, 0), b"", body)] * count)
    return sent(
        Sent(
            1,
            FIRST_ID + number,
            1_000,
            NODE_UID,
            1,
            number + 1,
            count,
            is_forwarded,
            [Placement(1, b"")],
            memoryview(pack),
            number + 1,
        )
    )


def happened(kind, number, count, due_ms=0):
    """A record of ranges about messages of the queue."""
    first = FIRST_ID + number
    return ranges(kind, 1, 1_000, [(first, first + count - 1)], due_ms=due_ms)


def append(store, record):
    """The position of the record."""
    return store.append(record.type, record.events, record.parts)


def numbers_in(records):
    """Which messages of the queue are there, of a store where nothing was settled."""
    found = []
    for _, kind, _, payload, _ in records:
        if kind == RecordType.SENT:
            told = decode_sent(payload)
            found += range(told.first_message_id, told.first_message_id + told.message_count)
        elif kind == RecordType.MOVED:
            found += [kept.id for kept in decode_moved(payload)[0]]
    return [id_ - FIRST_ID for id_ in found]


def take_over(place, settings=SHORT):
    """Open as soon as the lease of the present owner is over."""

    def attempt():
        with contextlib.suppress(StoreLocked):
            return place.started(settings)[0]
        return None

    return wait_until(attempt)
