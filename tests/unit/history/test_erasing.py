"""Erasing: messages are blank wherever a record holds them, and every record is where it was."""

import pytest

from hms.history.erasing import AUDIT, Erasure, blank_head
from hms.records import (
    Kept,
    Prepared,
    PreparedBatch,
    Sent,
    group,
    moved,
    prepared,
    sent,
)
from hms.records.audit import NO_HASH, AuditEntry, audit_record, breaks_of, chained, decode_audit
from hms.store.journal.disk import REAL_DISK
from hms.store.journal.journal import Journal
from hms.store.journal.reader import read_segment, verify
from hms.store.journal.segment_walk import (
    ERASED_SUFFIX,
    HISTORY_SUFFIX,
    all_files,
    read_info,
)
from hms.wire.packed_messages import ROW, Head, decode_head, encode_head, pack_messages

SEGMENT = 1 << 20
PERSONS = ["ann", "bob", "ann"]


def head_of(person):
    return encode_head(Head({"person": person}))


def packed():
    heads = [(head_of(p), b"of " + p.encode()) for p in PERSONS]
    return pack_messages([(ROW.pack(len(h), len(b), 0, 0, 4, 0, 0, 0), h, b) for h, b in heads])


def sent_record(first_id):
    about = 1, first_id, 5, 6, 7, 8, len(PERSONS)
    return sent(Sent(*about, is_forwarded=False, placements=[], pack=memoryview(packed())))


def moved_record(first_id):
    heads = [head_of(p) for p in PERSONS]
    kept = [Kept(first_id + i, 1, 5, 0, 4, 0, len(h), 2, ()) for i, h in enumerate(heads)]
    return moved(kept, [h + b"xy" for h in heads], None)


def prepared_record(first_id):
    pack = packed()
    batch = PreparedBatch(1, "", 6, 7, first_id, len(PERSONS), 5, len(pack))
    return prepared(Prepared(b"x", 1, 5, (batch,)), [pack])


RECORDS = {
    "sent": sent_record,
    "moved": moved_record,
    "prepared": prepared_record,
    "group": lambda first_id: group(1, 2, 3, 4, [sent_record(first_id), moved_record(first_id)]),
}


@pytest.fixture
def written(tmp_path):
    """A function that writes records into a store of its own; the segment that has them."""

    def write(*records):
        journal = Journal.open(tmp_path, segment_bytes=SEGMENT, node_uid=1)
        assert list(journal.recover()) == []
        journal.start(lambda: (11, 1, [b"dictionary"]))
        for record in records:
            journal.append(record.type, record.events, record.parts)
        journal.commit()
        journal.close()
        (file,) = all_files(REAL_DISK, tmp_path).values()
        return read_info(REAL_DISK, file, int(file.stem), is_last=True)

    return write


@pytest.mark.parametrize("size", [*range(300), 65_530, 65_540, 65_550])
def test_a_blank_head_of_every_size_says_nothing(size):
    """It takes the place of another one, to the byte."""
    head = blank_head(size)
    assert len(head) == size
    if size <= 65_540:
        found = decode_head(head)
        assert (found.properties, found.node, found.type) == ({}, {}, None)


@pytest.mark.parametrize("kind", RECORDS)
def test_what_is_chosen_is_blank_in_the_copy_and_nothing_else(written, kind):
    """Of each record that holds messages; nothing moves, all verifies, a second look finds none."""
    info = written(RECORDS[kind](100))
    erasure = Erasure("person = 'ann'", [])
    copies = 2 if kind == "group" else 1
    assert erasure.found(info) == [100, 102] * copies
    before = info.file.read_bytes()

    erasure.blank(info, {102})
    copy = info.file.with_suffix(ERASED_SUFFIX)
    after = copy.read_bytes()
    assert len(after) == len(before)
    assert (after.count(b"ann"), after.count(b"bob")) == (
        before.count(b"ann") / 2,
        before.count(b"bob"),
    )

    old = [(lsn, kind, events, at) for lsn, kind, events, _, at in read_segment(info.file)]
    copy.rename(info.file)
    assert [(r[0], r[1], r[2], r[4]) for r in read_segment(info.file)] == old
    assert list(verify(info.file.parent)) == []
    assert erasure.found(info) == [102] * copies


def test_arguments_of_the_audit_go_and_its_chain_is_whole(written):
    """The hash covers their digest."""
    said = ['{"selector": "person = \'ann\'"}', '{"name": "orders"}']
    entries, before = [], NO_HASH
    for number, text in enumerate(said, 1):
        entries.append(chained(AuditEntry(number, 5, "u", "", "a", "r", "c", text, 0, 1, before)))
        before = entries[-1].hash
    info = written(*map(audit_record, entries))
    erasure = Erasure("person = 'ann'", ["ann"])
    assert erasure.found(info) == [AUDIT]
    erasure.blank(info, ())
    info.file.with_suffix(ERASED_SUFFIX).rename(info.file)

    found = [
        decode_audit(r[3]) for r in read_segment(info.file) if r[1] == audit_record(entries[0]).type
    ]
    assert list(breaks_of(found)) == []
    assert [set(e.arguments) == {"*"} for e in found] == [True, False]
    assert erasure.found(info) == []


@pytest.mark.parametrize(
    ("word", "text", "goes"),
    [
        ("b", '{"user": "billing", "public": "a+b"}', True),
        ("b", '{"user": "billing", "roles": ["b2", "ab"]}', False),
        ("ann", '{"queue": "orders_ann"}', True),
        ("ann", '{"queue": "hannover"}', False),
        ("ann", '{"text": "dear\\nann"}', True),
        ("ann", '{"text": "dear\\u00e4ann"}', True),
        ("ann", '{"cut": "{\\"text\\": \\"dear\\\\nann"}', True),
        ("王", '{"text": "小王来"}', True),
        ("+49 30 1", '{"text": "call +49 30 12"}', False),
        ("+49 30 1", '{"text": "call+49 30 1!"}', True),
        ('"u"', '{"user": "u"}', True),
    ],
)
def test_of_the_audit_goes_what_has_the_word_and_not_what_has_its_letters(word, text, goes):
    """A value of one letter took nearly all arguments of the audit."""
    entry = chained(AuditEntry(1, 5, "u", "", "a", "r", "c", text, 0, 1, NO_HASH))
    (payload,) = audit_record(entry).parts

    assert (Erasure("FALSE", [word]).blank_audit(payload) is not None) is goes


def test_a_copy_takes_the_place_only_of_the_same_segment_that_has_left_the_log(written, tmp_path):
    """One that is not there, of another one, or of a segment that a boot reads, does nothing."""
    info = written(sent_record(100))
    history = info.file.with_suffix(HISTORY_SUFFIX)
    Erasure("person = 'ann'", []).blank(info, ())
    copy, good = info.file.with_suffix(ERASED_SUFFIX), info.file.read_bytes()
    blank = copy.read_bytes()
    journal = Journal.open(tmp_path, segment_bytes=SEGMENT, node_uid=1)

    def put():
        journal.adopt(info.number)
        journal.maintain()
        return copy.exists()

    assert not put()
    assert info.file.read_bytes() == good
    assert not put()

    info.file.rename(history)
    copy.write_bytes(b"x" * len(good))
    assert not put()
    assert history.read_bytes() == good

    copy.write_bytes(blank)
    assert not put()
    assert history.read_bytes() == blank
    journal.close()
