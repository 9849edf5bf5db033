"""Arrow batches are built column by column; row by row must give the same."""

import random

import pyarrow as pa
import pytest
from history_records import BILLING, NEWS, ORDERS, log, message, ranges_record

from hms.history import columns
from hms.history.columns import batches_of
from hms.history.events import COLUMNS
from hms.history.scan import read_events, read_runs, to_record_batch
from hms.history.scope import Scope
from hms.records import Cause, Placement, RecordType, Sent, group, sent
from hms.wire.packed_messages import Head, pack_messages

TYPES = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
}


def arrow_type(kind):
    if kind.startswith("array"):
        return pa.list_(pa.string())
    if kind.startswith("map"):
        return pa.map_(pa.string(), TYPES[kind[4:-1].split(",")[1]])
    return TYPES[kind]


SCHEMA = pa.schema([(name, arrow_type(kind)) for name, kind in COLUMNS.items()])


def records(seed):
    """A log of all kinds of records, from a seed."""
    rng = random.Random(seed)
    return list(log(*(rng.choice(MAKERS)(rng) for _ in range(rng.randrange(1, 30)))))


def _sent(rng):
    count, number = rng.randrange(1, 9), rng.choice((ORDERS, NEWS))
    heads = (
        Head(),
        Head({"a": 1, "s": "x", "f": 0.5, "b": True}, correlation_id="c", type="t"),
        Head({"raw": b"\x00", "huge": 2**64 - 1}, reply_to="queue:r"),
        b"\xc1",
    )
    packed = pack_messages(
        message(
            rng.choice(heads),
            rng.randbytes(rng.randrange(3)),
            ttl_ms=rng.choice((0, 5, 2**63)),
            priority=rng.randrange(10),
            kind=rng.randrange(7),
        )
        for _ in range(count)
    )
    taken = [Placement(BILLING, rng.choice((b"", b"\x05\x01")))] if number == NEWS else []
    first, is_forwarded = rng.randrange(1 << 48), rng.random() < 0.2
    return sent(
        Sent(number, first, rng.randrange(10**9), 7, 1, 1, count, is_forwarded, taken, packed)
    )


def _ranges(rng):
    kind = rng.choice((RecordType.DELIVERED, RecordType.ACKNOWLEDGED, RecordType.DISCARDED))
    cause = rng.choice(list(Cause)) if kind is RecordType.DISCARDED else Cause.NONE
    first = rng.randrange(1 << 40)
    spans = [(first, first + rng.randrange(20)), (first + 50, first + 50)]
    return ranges_record(kind, *spans, number=rng.choice((ORDERS, BILLING, 99)), cause=cause)


def _group(rng):
    return group(5, 1, rng.randrange(2), rng.randrange(10**9), [_sent(rng), _ranges(rng)])


MAKERS = (_sent, _ranges, _group)


@pytest.mark.parametrize("seed", range(25))
def test_columns_give_what_rows_give(seed, monkeypatch):
    """Wherever a batch ends, and wherever a reading begins and ends."""
    monkeypatch.setattr(columns, "BATCH_ROWS", random.Random(seed).choice((1, 3, 7, 8192)))
    rng, every = random.Random(seed), records(seed)
    last = every[-1][0] + every[-1][2]
    first = rng.randrange(101, last)
    for begin, until in ((0, None), (first, None), (first, rng.randrange(first, last + 1))):
        scope = Scope(first_offset=begin)
        rows = list(read_events(every, scope, until_offset=until))
        found = pa.Table.from_batches(batches_of(read_runs(every, scope, until), SCHEMA), SCHEMA)
        found.validate(full=True)

        wanted = to_record_batch(rows, SCHEMA).to_pylist() if rows else []
        assert found.to_pylist() == wanted


def test_columns_that_are_left_out_are_empty():
    """Reports without bodies must not carry them to Spark."""
    every = records(1)
    (batch,) = batches_of(read_runs(every, Scope()), SCHEMA, {"body"})

    assert batch.column("body").null_count == batch.num_rows
