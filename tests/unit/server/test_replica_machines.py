"""Frames and epochs of copies: what is refused changes nothing."""

from zlib import crc32

import pytest

from hms.errors.catalogue import (
    ArbiterWentBack,
    ReplicaFrameBad,
    ReplicaUnknown,
    ReplicaWentBack,
)
from hms.server.arbiter import Configuration, Leader, Member, Standing
from hms.server.replicas.catching_up import plan, resumes_at
from hms.server.replicas.frames import FORMAT, Beat, Envelope, Write, decode, encode
from hms.server.replicas.leadership import Campaign, Follow, Leadership
from hms.server.replicas.log_copy import LogCopy
from hms.store.journal.disk import REAL_DISK

LOG = "ab" * 16
MEMBERS = (Member("a", "1" * 32, 4), Member("b", "2" * 32, 7))


def frame(said, data=b"", **changes):
    given = {"form": FORMAT, "log": LOG, "epoch": 3, "replica": "a", "start": 1, "said": said}
    return [encode(Envelope(**{**given, **changes})), data]


def copy(*, me="b", start=8, promised=3, copy_id="2" * 32):
    made = Leadership(me, copy_id, start, promised, LOG, lease_s=5)
    made.begin(100)
    return made


def standing(leader=None, **changes):
    given = {"version": 5, "log": LOG, "epoch": 3, "primary": "a", "start": 4, "copies": 2}
    return Standing(Configuration(members=MEMBERS, **{**given, **changes}), leader)


@pytest.mark.parametrize(
    "parts",
    [
        [b"", b""],
        [b"\xff" * 40, b""],
        frame(Beat(1.0))[:1],
        [*frame(Beat(1.0)), b"more"],
        frame(Beat(1.0), form=FORMAT + 1),
        frame(Write(1, 1, 64, 0), b"other bytes"),
    ],
)
def test_a_frame_that_is_none_is_refused_by_name(parts):
    """No part, garbage, too few, too many, another format, bytes that do not verify."""
    with pytest.raises(ReplicaFrameBad):
        decode(parts)


def test_bytes_that_verify_come_through():
    """As they were sent."""
    said = Write(9, 2, 128, crc32(b"bytes"))

    assert decode(frame(said, b"bytes"))[1] == b"bytes"


def test_no_frame_of_a_lower_epoch_or_of_another_start_is_taken():
    """H1 and H3: an epoch has one writer, and a promise never falls."""
    one = copy(promised=3)

    assert not one.accepts(2, "a", 1)
    assert not one.accepts(0, "a", 1)
    assert one.accepts(3, "a", 4)
    assert not one.accepts(3, "a", 5)
    assert not one.accepts(3, "b", 4)
    assert one.accepts(4, "b", 9)
    assert not one.accepts(3, "a", 4)
    assert one.promised == 4


def test_a_copy_campaigns_when_nobody_leads_and_the_primary_is_silent():
    """Neither alone is enough."""
    one = copy()

    assert isinstance(one.decide(standing(Leader("a", 3)), 106), Follow)
    one.heard(104)
    assert isinstance(one.decide(standing(), 106), Follow)
    assert one.decide(standing(), 109) == Campaign(5)
    one.heard(110)
    one.left()
    assert one.decide(standing(), 110) == Campaign(5)


def test_one_that_is_no_member_only_follows():
    """A new disk under an old name is another copy (H12)."""
    one = copy(copy_id="3" * 32, start=1)

    assert isinstance(one.decide(standing(), 200), Follow)


@pytest.mark.parametrize(
    ("one", "said", "error"),
    [
        (copy(start=7), standing(), ReplicaWentBack),
        (copy(start=2), standing(), ReplicaWentBack),
        (copy(me="a", copy_id="1" * 32, start=4), standing(), ReplicaWentBack),
        (copy(promised=4), standing(), ArbiterWentBack),
        (copy(), standing(log="cd" * 16), ReplicaUnknown),
        (copy(), None, ReplicaUnknown),
    ],
)
def test_what_went_back_or_is_of_another_log_is_refused(one, said, error):
    """Named, and never counted."""
    with pytest.raises(error):
        one.decide(said, 200)


def test_a_copy_keeps_what_has_the_same_writer_and_drops_the_rest():
    """What it dropped it joins without; then it gets what it lacks."""
    ours = {1: b"1a", 2: b"2a", 3: b"3b"}

    assert plan({1: b"1a", 2: b"2a", 3: b"3a", 4: b"4a"}, {4: 99}, ours) == ([3, 4], [])
    assert plan({1: b"1a", 2: b"2a"}, {2: 99}, ours) == ([], [2, 3])
    assert plan({}, {}, ours) == ([], [1, 2, 3])


def test_a_copy_goes_on_before_the_place_of_a_seal():
    """It may have a record where we have one."""
    assert resumes_at(1000, 400) == 368
    assert resumes_at(200, 400) == 200
    assert resumes_at(0, 64) == 64


@pytest.mark.parametrize("said", [Write(1, 1, 0, 0), Write(1, 9, 64, 0)])
def test_bytes_for_no_segment_or_over_a_header_are_refused(tmp_path, said):
    """A gap costs the link, nothing else."""
    with pytest.raises(ReplicaFrameBad):
        LogCopy(REAL_DISK, tmp_path).take(said, b"x" * 8)

    assert list(tmp_path.iterdir()) == []
