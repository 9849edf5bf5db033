"""Arrow batches are built column by column, by compiled loops where there are any; row by row must
give the same."""

import random

import msgspec
import pyarrow as pa
import pytest
from history_records import BILLING, NEWS, ORDERS, log, message, ranges_record, sent_record
from hypothesis import example, given
from hypothesis import strategies as st

from hms.errors.catalogue import MessageFormatError
from hms.history import columns, message_arrays
from hms.history.columns import batches_of
from hms.history.events import COLUMNS
from hms.history.scan import read_events, read_runs, to_record_batch
from hms.history.scope import Scope
from hms.records import Cause, Placement, RecordType, Sent, group, sent
from hms.wire.packed_messages import IS_NATIVE, Head, pack_messages

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
            ttl_ms=rng.choice((0, 5, 253_402_300_799_999, 2**63, 2**64 - 1)),
            priority=rng.randrange(256),
            kind=rng.choice((*range(7), 16, 22, 23, 255)),
        )
        for _ in range(count)
    )
    taken = [Placement(BILLING, rng.choice((b"", b"\x05\x01")))] if number == NEWS else []
    first, is_forwarded = rng.randrange(1 << 48), rng.random() < 0.2
    return sent(
        Sent(number, first, rng.randrange(10**9), 7, 1, 1, count, is_forwarded, taken, packed)
    )


def _ranges(rng):
    kind = rng.choice(list(RecordType)[3:8])
    cause = rng.choice(list(Cause)) if kind is RecordType.DISCARDED else Cause.NONE
    first = rng.randrange(1 << 40)
    spans = [(first, first + rng.randrange(20)), (first + 50, first + 50)]
    return ranges_record(kind, *spans, number=rng.choice((ORDERS, BILLING, 99)), cause=cause)


def _group(rng):
    return group(5, 1, rng.randrange(2), rng.randrange(10**9), [_sent(rng), _ranges(rng)])


MAKERS = (_sent, _ranges, _group)


def alike(found, wanted):
    """The same values; a number that is none is like itself."""
    assert repr(found) == repr(wanted)


@pytest.mark.parametrize("seed", range(25))
def test_columns_give_what_rows_give(seed, monkeypatch):
    """Wherever a batch ends, and wherever a reading begins; compiled and in Python."""
    if seed % 4 == 0:
        monkeypatch.setattr(message_arrays, "message_columns", None)
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


NAMES = st.text(max_size=40) | st.sampled_from(["a", "b", "$Topic"])
PLAIN = st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
ODD = (
    PLAIN | st.none() | st.lists(st.booleans(), max_size=2) | st.just(msgspec.msgpack.Ext(3, b"x"))
)
FEW, MANY = {"max_size": 6}, {"min_size": 60, "max_size": 70}
OPTIONAL = st.none() | st.text(max_size=300)


def heads(values, sizes, names=NAMES):
    """The six fields of a head."""
    properties = st.dictionaries(names, values, **sizes)
    return st.tuples(properties, st.binary(max_size=6), OPTIONAL, OPTIONAL, OPTIONAL, properties)


ORDINARY = heads(PLAIN, FEW).map(msgspec.msgpack.encode)
STRANGE = st.one_of(
    heads(ODD, FEW).map(msgspec.msgpack.encode),
    st.tuples(heads(PLAIN, FEW), st.integers(0, 5)).map(
        lambda both: msgspec.msgpack.encode(both[0][: both[1]])
    ),
    heads(PLAIN, FEW).map(lambda head: msgspec.msgpack.encode((*head, "more"))),
    st.dictionaries(st.integers(0, 99).map(str), PLAIN, **MANY).map(
        lambda properties: msgspec.msgpack.encode((properties, b"", None, None, None, {}))
    ),
    st.tuples(ORDINARY, st.integers(0, 400), st.binary(max_size=2)).map(
        lambda told: told[0][: told[1]] + told[2] + told[0][told[1] + 1 :]
    ),
    st.binary(max_size=40),
)


@given(st.lists(ORDINARY | STRANGE, min_size=1, max_size=8))
@example([b"\x96\x82\xa1a\x01\xa1a\x02\xc4\x00\xc0\xc0\xc0\x80"])  # a name twice
@example([b"\x96\x81\xa1a\xca\x3f\xc0\x00\x00\xc4\x00\xc0\xc0\xc0\x80"])  # a float of 4 bytes
@example([b"\x96\x82\xa1a\xd0\xff\xa1b\xd2\x80\x00\x00\x00\xc4\x00\xc0\xc0\xc0\x80"])
@example([b"\x96\x80\xc4\x00\xa2\xed\xa0\xc0\xc0\x80", b"\x96\x80\xc4\x00\xa1\xff\xc0\xc0\x80"])
@example([msgspec.msgpack.encode(({"long": "x" * 70_000}, b"", None, None, None, {}))])
def test_every_head_gives_the_fields_that_a_row_has(found):
    """The compiled loops read the ordinary ones; what they leave to Python must fit in between."""
    every = list(log(sent_record([message(head, b"body") for head in found])))
    (batch,) = batches_of(read_runs(every, Scope()), SCHEMA)
    batch.validate(full=True)

    alike(batch.to_pylist(), to_record_batch(list(read_events(every, Scope())), SCHEMA).to_pylist())


@pytest.mark.skipif(not IS_NATIVE, reason="this package was built without a C compiler")
def test_only_the_columns_that_are_asked_for_are_filled(monkeypatch):
    """A reading of three columns takes no message apart, one of another only what it needs."""
    asked = []
    compiled = message_arrays.message_columns

    def counted(packs, wanted, fields_of):
        asked.append(wanted)
        return compiled(packs, wanted, fields_of)

    monkeypatch.setattr(message_arrays, "message_columns", counted)
    every = list(log(sent_record([message(Head({"a": 1}, type="t"))] * 3)))
    for names in (["offset", "event", "time"], ["offset", "type"], ["long_properties", "body"]):
        schema = pa.schema([SCHEMA.field(name) for name in names])
        (batch,) = batches_of(read_runs(every, Scope()), schema)
        assert (
            batch.to_pylist()
            == to_record_batch(list(read_events(every, Scope())), schema).to_pylist()
        )

    assert asked == [1 << 4, 1 << 1 | 1 << 7]


@pytest.mark.parametrize("change", [-1, 1])
def test_a_pack_that_does_not_add_up_is_refused_as_by_rows(change):
    """A log that says nonsense behind a right checksum must not be read as something else."""
    lsn, kind, count, payload, _ = list(log(sent_record([message(Head({"a": 1}))] * 3)))[1]
    payload = payload[:change] if change < 0 else payload + b"?"

    with pytest.raises(MessageFormatError):
        list(batches_of(read_runs([(lsn, kind, count, payload, 0)], Scope()), SCHEMA))


def test_columns_that_are_left_out_are_empty():
    """Reports without bodies must not carry them to Spark."""
    every = records(1)
    (batch,) = batches_of(read_runs(every, Scope()), SCHEMA, {"body"})

    assert batch.column("body").null_count == batch.num_rows


def test_a_file_of_the_archive_that_is_older_than_a_column_has_nulls_there(tmp_path):
    """An archive outlives the release that wrote it."""
    import pyarrow.parquet as pq

    from hms.history import archive_files

    row = {"offset": 7, "event": "purged", "message_id": "0" * 12, "time": 0}
    row |= {"destination": "q", "destination_kind": "queue"}
    types = {"offset": pa.int64(), "time": pa.timestamp("us", "UTC")}
    names = ("offset", "event", "time", "message_id", "destination", "destination_kind")
    fields = [(name, types.get(name, pa.string())) for name in (*names, "subscription")]
    table = pa.Table.from_pylist([row], pa.schema(fields))
    pq.write_table(table, tmp_path / "old.parquet")
    file = str(tmp_path / "old.parquet")

    ((event,),) = archive_files.read_events(file, Scope(), 100, ["operation"])
    schema = pa.schema([("offset", pa.int64()), ("operation", pa.int64())])
    (batch,) = archive_files.read_batches(file, Scope(), 100, schema)

    assert (event.offset, event.operation) == (7, None)
    assert batch.to_pylist() == [{"offset": 7, "operation": None}]
