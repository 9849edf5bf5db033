"""Bad records found at boot: torn writes are cut, damage is refused and named."""

import random
import shutil

import pytest
from journal_support import (
    SMALL,
    bodies,
    booted,
    contents,
    flip,
    recovered,
    segments,
)

from hms.errors.catalogue import StoreCorrupt
from hms.store.journal.disk import RealDisk
from hms.store.journal.format import RECORD_HEADER_BYTES, Entry, pack_records
from hms.store.journal.reader import list_segments
from hms.store.journal.recovery import alone_records
from hms.store.journal.segment_walk import Walk, opened, read_info

BODIES = [b"first record", b"second record", b"third, a longer record", b"the last one"]
SIZES = [32 + len(body) + -len(body) % 8 for body in BODIES]
START = 64 + 32 + 16  # segment header, dictionary


def store_of(path, batches):
    """A store as a crash leaves it: the batches are synced one by one."""
    journal, _ = booted(path)
    for batch in batches:
        for body in batch:
            journal.append(3, 1, (body,))
        journal.commit()
    journal.close()
    return segments(path)[-1]


def offset_of(n):
    return START + sum(SIZES[:n])


def test_a_last_record_that_is_cut_at_any_byte_is_dropped_and_the_others_stay(tmp_path):
    """A crash in the middle of a write must never keep a node from booting."""
    file = store_of(tmp_path, [BODIES])
    whole = file.read_bytes()
    end = offset_of(4)
    for cut in range(offset_of(3), end):
        for damaged in (whole[:cut], whole[:cut].ljust(SMALL, b"\0")):
            file.write_bytes(damaged)
            is_whole = cut >= offset_of(3) + 32 + len(BODIES[3]) or damaged[:end] == whole[:end]
            assert recovered(tmp_path) == (BODIES if is_whole else BODIES[:3])


def test_a_flip_in_the_last_record_drops_it_alone(tmp_path):
    """Some sectors of the last write may be old ones: the record is then no record."""
    file = store_of(tmp_path, [[body] for body in BODIES])
    whole = file.read_bytes()
    for at in range(offset_of(3), offset_of(3) + 32 + len(BODIES[3])):
        file.write_bytes(whole)
        flip(file, at, 1 << at % 8)
        assert recovered(tmp_path) == BODIES[:3]


def test_a_flip_in_the_record_before_it_drops_both_when_they_were_written_together(tmp_path):
    """Sectors of one write reach the disk in any order, so neither was confirmed."""
    file = store_of(tmp_path, [BODIES[:2], BODIES[2:]])
    whole = file.read_bytes()
    for at in range(offset_of(2), offset_of(2) + 32 + len(BODIES[2])):
        file.write_bytes(whole)
        flip(file, at, 1 << at % 8)
        assert recovered(tmp_path) == BODIES[:2]


def test_a_flip_in_a_record_that_had_been_synced_refuses_to_boot(tmp_path):
    """A later write proves that it had been confirmed: cutting there would lose it in silence."""
    file = store_of(tmp_path, [[body] for body in BODIES])
    whole = file.read_bytes()
    for at in range(offset_of(1), offset_of(3)):
        n = 1 if at < offset_of(2) else 2
        if at >= offset_of(n) + 32 + len(BODIES[n]):
            continue  # padding says nothing
        file.write_bytes(whole)
        flip(file, at, 1 << at % 8)
        before = contents(tmp_path)
        with pytest.raises(StoreCorrupt) as caught:
            recovered(tmp_path)
        assert (caught.value.file, caught.value.offset) == (str(file), offset_of(n))
        assert caught.value.lsn == n + 2
        assert contents(tmp_path) == before


def test_damage_is_found_in_any_segment_but_the_last_wherever_it_is(tmp_path):
    """All of them were synced: the boot is refused or nothing is missing, never in between."""
    sent = [b"%04d" % i * (i % 90) for i in range(60)]
    store_of(tmp_path / "sound", [sent])
    names = [file.name for file in segments(tmp_path / "sound")[:-1]]
    chance, refused = random.Random(4), 0
    for n in range(150):
        path = shutil.copytree(tmp_path / "sound", tmp_path / str(n))
        file = path / chance.choice(names)
        flip(file, chance.randrange(SMALL), 1 << chance.randrange(8))
        before = contents(path)
        error = refusal(path, sent)
        if error:
            refused += 1
            assert error.file == str(file)
            assert contents(path) == before
    assert refused > 100


def refusal(path, expected):
    """The error that refuses the boot; without one, nothing may be missing."""
    try:
        assert recovered(path) == expected
    except StoreCorrupt as error:
        return error
    return None


def test_zeros_in_the_middle_of_the_last_segment_are_damage(tmp_path):
    """A lost sector looks like the end of the log, yet later records prove that it is not."""
    file = store_of(tmp_path, [[body] for body in BODIES])
    data = bytearray(file.read_bytes())
    data[offset_of(1) : offset_of(2)] = bytes(SIZES[1])
    file.write_bytes(data)

    with pytest.raises(StoreCorrupt) as caught:
        recovered(tmp_path)
    assert caught.value.offset == offset_of(1)


def test_bytes_behind_a_cut_never_come_back(tmp_path):
    """A torn record that survives behind the cut must not follow records that are written later."""
    file = store_of(tmp_path, [BODIES[:2], BODIES[2:]])
    flip(file, offset_of(2))
    assert recovered(tmp_path) == BODIES[:2]
    assert file.read_bytes()[offset_of(2) :] == bytes(RECORD_HEADER_BYTES)  # room for the seal

    journal, _ = booted(tmp_path)
    journal.append(3, 1, (BODIES[2],))
    journal.commit()
    journal.close()

    assert recovered(tmp_path) == BODIES[:3]


def test_records_of_another_boot_do_not_verify_in_this_segment(tmp_path):
    """The same bytes at the same place, written by an earlier boot: the salt tells them apart."""
    old = store_of(tmp_path / "a", [BODIES]).read_bytes()
    booted(tmp_path / "b")[0].close()
    file = store_of(tmp_path / "b", [BODIES[:1]])
    data = bytearray(file.read_bytes())
    data[offset_of(1) : offset_of(4)] = old[offset_of(1) : offset_of(4)]
    file.write_bytes(data)

    assert recovered(tmp_path / "b") == BODIES[:1]


def test_a_message_that_holds_a_piece_of_this_log_is_not_taken_for_records(tmp_path):
    """Somebody may send a copy of the log through the node; a torn write of it must still boot."""
    file = store_of(tmp_path, [[body] for body in BODIES])
    copy = file.read_bytes()[: offset_of(4)]
    file.unlink()
    (tmp_path / "spare.log").unlink(missing_ok=True)
    file = store_of(tmp_path, [[body] for body in BODIES] + [[copy]])
    assert recovered(tmp_path) == [*BODIES, copy]
    flip(file, offset_of(4) + 32 + len(copy) - 1)
    assert recovered(tmp_path) == BODIES


def test_a_message_that_forges_a_later_record_does_not_keep_a_torn_store_from_booting(tmp_path):
    """Behind a record whose header is whole, its payload is hopped over in the search for proof."""
    journal, _ = booted(tmp_path)
    journal.append(3, 1, (BODIES[0],))
    journal.commit()
    (info,) = list_segments(tmp_path)
    forged = b"".join(pack_records([Entry(1, 1000, 3, 1, (b"x",), 1)], info.salt))
    journal.append(3, 1, (forged, bytes(8)))
    journal.commit()
    journal.close()
    flip(info.file, offset_of(1) + 32 + len(forged))

    assert recovered(tmp_path) == BODIES[:1]


def test_a_record_that_stands_where_another_belongs_is_none(tmp_path):
    """A misdirected write verifies by its checksum; only the sequence tells."""
    file = store_of(tmp_path, [BODIES])
    data = bytearray(file.read_bytes())
    data[offset_of(4) : offset_of(4) + SIZES[0]] = data[offset_of(0) : offset_of(1)]
    file.write_bytes(data)

    assert recovered(tmp_path) == BODIES


def test_a_pinned_segment_whose_seal_was_torn_is_read(tmp_path):
    """The seal is written behind the successor's sync: no crash in it may damage what is sealed."""
    file = store_of(tmp_path, [[body] for body in BODIES])
    reopened(tmp_path)
    whole, end = file.read_bytes(), offset_of(4)
    seal = whole[end : end + RECORD_HEADER_BYTES]
    assert any(seal)
    file = file.rename(file.with_suffix(".pinned"))
    for cut in range(RECORD_HEADER_BYTES + 1):
        for part in (seal[:cut].ljust(len(seal), b"\0"), seal[cut:].rjust(len(seal), b"\0")):
            file.write_bytes(whole[:end] + part)
            assert pinned_bodies(tmp_path) == BODIES


def test_other_bytes_in_place_of_a_seal_are_damage(tmp_path):
    """A record that stood there cannot be told from a seal that never was."""
    file = store_of(tmp_path, [[body] for body in BODIES])
    reopened(tmp_path)
    whole, end = file.read_bytes(), offset_of(4)
    file = file.rename(file.with_suffix(".pinned"))
    for damaged in (
        whole[:end] + b"\x01" * RECORD_HEADER_BYTES,
        whole[:end] + whole[end : end + 8].ljust(RECORD_HEADER_BYTES, b"\0") + b"more",
        whole[: end - SIZES[3]] + bytes([whole[end - SIZES[3]] ^ 1]) + whole[end - SIZES[3] + 1 :],
    ):
        file.write_bytes(damaged)
        with pytest.raises(StoreCorrupt):
            pinned_bodies(tmp_path)


def reopened(path):
    """The next boot seals the segment of the one before."""
    journal, _ = booted(path)
    journal.close()


def pinned_bodies(path):
    """What the first segment holds, read without the one behind it."""
    disk, file = RealDisk(), path / f"{1:016d}.pinned"
    info = read_info(disk, file, 1, is_last=False)
    with opened(disk, file) as fd:
        return bodies(alone_records(Walk(disk, fd, info), info))
