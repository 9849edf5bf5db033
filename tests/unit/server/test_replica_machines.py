"""Frames and epochs of copies: what is refused changes nothing."""

import ast
import shutil
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from zlib import crc32

import pytest
import zmq
from msgspec import structs

import hms
from hms.boot import replicating
from hms.boot.replicating import _state
from hms.errors.catalogue import (
    ArbiterWentBack,
    ReplicaAddressInUse,
    ReplicaFrameBad,
    ReplicasNotBegun,
    ReplicaUnknown,
    ReplicaWentBack,
)
from hms.server.arbiter import Configuration, Leader, Member, Standing
from hms.server.arbiter.memory import MemoryArbiter, MemoryEngine
from hms.server.replicas.catching_up import plan, resumes_at
from hms.server.replicas.confirmation import Confirmation, Limits
from hms.server.replicas.copy_state import CopyState, begin_copy, write_state
from hms.server.replicas.damage import Damage, check_segment, note_damages, read_damages
from hms.server.replicas.follower import Follower, Won
from hms.server.replicas.frames import (
    FORMAT,
    AppliedUpTo,
    Aside,
    AskApplied,
    Beat,
    BeatAck,
    Clock,
    Cut,
    Drop,
    Envelope,
    Reads,
    Resume,
    Segment,
    Time,
    Write,
    decode,
    encode,
)
from hms.server.replicas.leadership import Campaign, Follow, Leadership
from hms.server.replicas.link import FollowerSocket, Group, Held, Peer, PrimarySocket, now_s
from hms.server.replicas.log_copy import ASIDE_MAX, LogCopy, aside_names
from hms.server.replicas.promises import End, GiveWay, Lead, Promises
from hms.server.replicas.scrubbing import Scrubbing
from hms.server.replicas.take_over import TakeOver
from hms.store.journal.confirmed_place import NOTHING, ConfirmedPlace, Place, confirmed_place
from hms.store.journal.disk import REAL_DISK, RealDisk
from hms.store.journal.format import (
    FORMATS,
    Author,
    Entry,
    pack_records,
    pack_seal,
    pack_segment_header,
    unpack_segment_header,
)
from hms.store.journal.recovery import Recovery
from hms.store.journal.segment_walk import ReadUpTo
from hms.testing.ports import free_port
from tests.support.waiting import wait_until

LOG = "ab" * 16
MEMBERS = (Member("a", "1" * 32, 4), Member("b", "2" * 32, 7))


def frame(said, data=b"", **changes):
    given = {"form": FORMAT, "log": LOG, "epoch": 3, "replica": "a", "start": 1, "said": said}
    return [encode(Envelope(**{**given, **changes})), data]


def copy(*, me="b", start=8, promised=3, copy_id="2" * 32, checks_s=0.0):
    made = Leadership(me, copy_id, start, promised, LOG, lease_s=5, checks_s=checks_s)
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


def test_further_checks_put_off_a_campaign_and_no_promise():
    """A silent machine is given more time; one whose process has ended is not."""
    one = copy(checks_s=10)
    one.heard(104)

    assert isinstance(one.decide(standing(), 118.9), Follow)
    assert one.may_promise(4, "c", 1, 109)  # another machine may have counted differently
    assert one.decide(standing(), 119) == Campaign(5)

    one.heard(120)
    one.left()
    assert one.decide(standing(), 120) == Campaign(5)


def test_a_copy_does_not_wait_for_one_whose_process_has_ended():
    """It may promise, too; what was said of an epoch before tells nothing of the one that leads."""
    one = copy()
    assert one.accepts(3, "a", 4)
    one.heard(104)
    told = structs.replace(standing(), preferred="*2")
    assert isinstance(one.decide(told, 105), Follow)
    assert not one.may_promise(4, "c", 1, 105)

    assert one.decide(structs.replace(told, preferred="*3"), 105) == Campaign(5)

    assert one.may_promise(4, "c", 1, 105)
    led = structs.replace(told, preferred="*3", leader=Leader("a", 3))
    assert isinstance(one.decide(led, 105), Follow)


def test_a_lease_that_was_given_to_another_copy_says_what_a_good_bye_does():
    """That one may be lost: then who is to lead waited for a promise until a lease was over."""
    one = copy()
    assert one.accepts(3, "a", 4)
    one.heard(104)
    led = structs.replace(standing(Leader("a", 3)), preferred="c")
    own = standing(primary="c", epoch=4, version=6)
    for told in (led, structs.replace(own, preferred="c")):
        one.decide(told, 105)
        assert not one.may_promise(4, "c", 1, 105)

    found = one.decide(structs.replace(standing(), preferred="c"), 105)

    assert isinstance(found, Follow)
    assert found.primary == "c"
    assert one.may_promise(4, "c", 1, 105)


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

    assert plan({1: b"1a", 2: b"2a", 3: b"3a", 4: b"4a"}, {4: 99}, ours) == ([], [], [3, 4])
    assert plan({0: b"0a", 2: b"2a"}, {2: 99}, ours) == ([0], [], [])
    assert plan({1: b"1a", 2: b"2a"}, {2: 99}, ours) == ([], [2, 3], [])
    assert plan({}, {}, ours) == ([], [1, 2, 3], [])


def test_a_copy_keeps_what_its_primary_has_in_its_history_by_now():
    """It was dropped, and came again with the history, if it did: a history had a gap meanwhile."""
    ours, left = {3: b"3a"}, {1: b"1a", 2: b"2a"}

    theirs = {1: b"1a", 2: b"2a", 3: b"3a"}
    assert plan(theirs, {3: 99, 1: 64}, ours, left) == ([], [3], [])
    assert plan({1: b"1b", 2: b"2a", 3: b"3a"}, {3: 99}, ours, left) == ([1], [], [])
    assert plan({1: b"1a", 2: b"2a"}, {2: 99}, ours, left) == ([2], [], [])


def _written(*segments):
    """Headers of these segments: number and epoch."""
    return {
        number: pack_segment_header(Author(7, epoch), number, 10 * number, 1)
        for number, epoch in segments
    }


def test_what_a_promotion_with_a_loss_may_have_left_out_is_set_aside():
    """It was confirmed, and who comes back late has it alone: the log has left those numbers since,
    so nothing here shows that they were written again."""
    theirs, ours = _written((2, 4), (3, 4), (4, 4)), _written((6, 5), (7, 5))

    assert plan(theirs, {4: 99}, ours, {}, lost_epoch=4).diverged == [2, 3, 4]
    assert plan(theirs, {4: 99}, ours, {}, lost_epoch=4).drop == []
    assert plan(theirs, {4: 99}, ours).drop == [2, 3, 4], "nobody accepted a loss"
    assert plan(_written((4, 5)), {4: 99}, ours, {}, lost_epoch=4).drop == [4], "it came after it"


def test_what_shows_to_be_of_the_log_is_dropped_after_a_loss_too():
    """The log let it go after all was confirmed that replaces it."""
    ours = _written((5, 4), (6, 4), (7, 5))

    assert plan(_written((2, 4), (3, 4)), {3: 99}, ours, {}, lost_epoch=4).drop == [2, 3]
    theirs = _written((3, 3), (6, 4))
    assert plan(theirs, {6: 99}, ours, {}, lost_epoch=4) == ([3], [], [])


def test_a_copy_that_was_away_for_long_after_a_loss_is_of_the_log():
    """Its last segment is in the history, or somebody wrote in it behind the loss: what its readers
    had seen was taken back (H10)."""
    theirs, ours = _written((2, 4), (3, 4)), _written((5, 6), (6, 7))

    assert plan(theirs, {3: 99}, ours, _written((2, 4), (3, 4)), lost_epoch=4) == ([3], [], [])
    assert plan(_written((1, 1), (2, 5)), {2: 99}, ours, {}, lost_epoch=4) == ([1, 2], [], [])


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


def segment(number, epoch, *payloads):
    """A header, and records behind it."""
    header = pack_segment_header(Author(7, epoch), number, 1, 1)
    salt = unpack_segment_header(header).salt
    entries = [Entry(number, 1 + n, 1, 1, (one,), len(one)) for n, one in enumerate(payloads)]
    return header, b"".join(pack_records(entries, salt))


@pytest.fixture
def led(tmp_path):
    """A copy that led and has two records; the second one nobody adopted."""
    one = LogCopy(REAL_DISK, tmp_path)
    header, data = segment(1, 3, b"adopted ", b"never ad")
    one.take(Segment(0, 1, 4096, ".log"), header)
    one.take(Write(0, 1, 64, crc32(data)), data)
    one.sync()
    one.joins("c" * 32, 3)
    return one


def test_a_tail_that_nobody_adopted_is_set_aside_before_it_is_written_over(led, tmp_path):
    """H7: it is in no log any more, and is there to be looked at."""
    before = (tmp_path / f"{1:016d}.log").read_bytes()
    _, data = segment(1, 3, b"adopted ", b"another1")

    led.take(Write(0, 1, 64, crc32(data)), data)

    (aside,) = tmp_path.glob("*.aside")
    assert aside.name == f"{1:016d}-3.aside"
    assert aside.read_bytes() == before[: aside.stat().st_size]
    assert b"never ad" in aside.read_bytes()
    led.take(Write(0, 1, 64, 0), segment(1, 3, b"third   ")[1])
    assert b"never ad" in aside.read_bytes()


def test_a_copy_that_is_asked_again_answers_without_another_look(tmp_path):
    """A candidate asks faster than a copy with a full segment can look: it answered when the
    candidate had given up, in each epoch anew, and nobody led."""
    reads = []

    class Counting(RealDisk):
        def pread(self, fd, size, offset):
            reads.append(size)
            return super().pread(fd, size, offset)

    one = LogCopy(Counting(), tmp_path)
    header, data = segment(1, 3, b"first")
    one.take(Segment(0, 1, 4096, ".log"), header)
    one.take(Write(0, 1, 64, crc32(data)), data)
    found = one.tail()
    reads.clear()
    assert [one.tail() for _ in range(20)] == [found] * 20
    assert reads == []

    _, more = segment(1, 3, b"first", b"second")
    one.take(Write(0, 1, 64, crc32(more)), more)
    assert one.tail()[0].offset == 64 + len(more) > found[0].offset
    one.close()


def test_a_tail_that_is_cut_is_set_aside_and_one_that_is_the_same_is_not(led, tmp_path):
    """The primary's bytes as far as both go say nothing."""
    _, data = segment(1, 3, b"adopted ")

    led.take(Write(0, 1, 64, crc32(data)), data)
    assert list(tmp_path.glob("*.aside")) == []
    led.take(Cut(1, 64 + len(data)), b"")

    (aside,) = tmp_path.glob("*.aside")
    assert b"never ad" in aside.read_bytes()
    assert b"never ad" not in (tmp_path / f"{1:016d}.log").read_bytes()


def test_what_is_damaged_behind_the_end_that_an_operator_accepts_is_set_aside_and_cut(tmp_path):
    """It was only forgotten: a copy that was started again before it had written anything found it
    again, led no more, and the acceptance was of an epoch that was over."""
    one = LogCopy(REAL_DISK, tmp_path)
    header, data = segment(1, 3, b"adopted ", b"damaged ")
    one.take(Segment(0, 1, 4096, ".log"), header)
    one.take(Write(0, 1, 64, crc32(data)), data)
    one.sync()
    file = tmp_path / f"{1:016d}.log"
    at = file.read_bytes().index(b"damaged ")
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(b"dbmaged ")
    damage = check_segment(REAL_DISK, tmp_path, 1)
    assert damage is not None

    one.end_at(1, damage.offset)

    assert check_segment(REAL_DISK, tmp_path, 1) is None
    (aside,) = tmp_path.glob("*.aside")
    assert b"dbmaged " in aside.read_bytes()
    assert b"adopted " in file.read_bytes()


def test_whole_segments_are_set_aside_and_all_that_came_at_once_are_kept(tmp_path):
    """They may be what an operator let go of with a loss. Else the newest are kept (P8); one
    without records is nothing to look at."""
    one = LogCopy(REAL_DISK, tmp_path)
    for number in range(1, ASIDE_MAX + 4):
        header, data = segment(number, 3, b"never ad")
        one.take(Segment(0, number, 4096, ".log"), header)
        if number > 1:
            one.take(Write(0, number, 64, crc32(data)), data)

    one.take(Aside(list(range(1, ASIDE_MAX + 4))), b"")

    names = aside_names(REAL_DISK, tmp_path)
    assert list(tmp_path.glob("*.log")) == []
    assert [int(name[:16]) for name in names] == list(range(2, ASIDE_MAX + 4))

    header, data = segment(99, 4, b"never ad")
    one.take(Segment(0, 99, 4096, ".log"), header)
    one.take(Write(0, 99, 64, crc32(data)), data)
    one.take(Aside([99]), b"")
    names = aside_names(REAL_DISK, tmp_path)
    assert [int(name[:16]) for name in names] == [*range(5, ASIDE_MAX + 4), 99]


@pytest.fixture
def sealed(tmp_path):
    """A copy with two segments, the first one sealed, and how its log ends to a reader."""
    one = LogCopy(REAL_DISK, tmp_path)
    first, data = segment(1, 3, b"adopted ")
    one.take(Segment(0, 1, 4096, ".log"), first)
    one.take(Segment(0, 2, 4096, ".log"), pack_segment_header(Author(7, 3), 2, 2, 1))
    data += pack_seal(2, unpack_segment_header(first).salt)
    one.take(Write(0, 1, 64, crc32(data)), data)
    entry = Entry(2, 2, 1, 1, (b"never ad",), 8)
    salt = unpack_segment_header((tmp_path / f"{2:016d}.log").read_bytes()).salt
    never = b"".join(pack_records([entry], salt))
    one.take(Write(0, 2, 64, crc32(never)), never)
    one.sync()
    return one


@pytest.mark.parametrize("said", [Aside([2]), Drop([2], [])])
def test_a_copy_whose_newest_segment_goes_has_lost_nothing(said, sealed, tmp_path):
    """A seal says that a segment follows: with one at its end the copy counted as damaged, until a
    primary came that may never have come."""
    assert sealed.end_before(2) == Place(1, 104)

    sealed.take(said, b"")

    assert sealed.tail() == (End(3, 1, 104), True)
    recovery = Recovery(REAL_DISK, tmp_path, 7)
    assert [bytes(payload) for _, _, _, payload, _ in recovery.records()] == [b"adopted "]


def test_a_copy_that_lost_its_newest_segment_is_not_whole(sealed, tmp_path):
    """The same end, when nobody had it go."""
    (tmp_path / f"{2:016d}.log").unlink()

    assert sealed.tail()[1] is False


def test_the_seal_goes_before_what_follows_it(sealed, tmp_path, monkeypatch):
    """A crash in between leaves a log that is whole."""

    def crash(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(REAL_DISK), "rename", crash)
    with pytest.raises(KeyboardInterrupt):
        sealed.take(Aside([2]), b"")

    recovery = Recovery(REAL_DISK, tmp_path, 7)
    found = [bytes(payload) for _, _, _, payload, _ in recovery.records()]
    assert found == [b"adopted ", b"never ad"]


def test_no_clock_that_can_be_set_is_read_by_the_copies():
    """H16: a wrong clock costs nothing; the one that is read counts through a suspension, too."""
    folder = Path(hms.__file__).parent / "server" / "replicas"
    names = {
        f"{node.value.id}.{node.attr}"
        for file in folder.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }

    clocks = {name for name in names if name.startswith(("time.", "datetime."))}
    assert clocks == {"time.clock_gettime", "time.CLOCK_BOOTTIME"}


THREE = (*MEMBERS, Member("c", "3" * 32, 2))


ONE_ALONE = Limits(copies_min=1, timeout_s=2, lost_s=60)


def three(**changes):
    given = {"version": 5, "log": LOG, "epoch": 4, "primary": "b", "start": 8, "copies": 2}
    return Configuration(**{**given, "members": THREE, **changes})


def test_of_three_copies_two_promise_before_one_leads_and_the_furthest_one_does():
    """By the epoch of the last segment first: a longer one of an older epoch was not adopted."""
    asked = Promises(three())
    assert asked.needed == 2
    asked.promised("2" * 32, End(3, 9, 400), is_clean=True)
    assert asked.verdict("2" * 32) is None
    asked.promised("2" * 32, End(3, 9, 400), is_clean=True)
    assert asked.verdict("2" * 32) is None  # the same one twice
    asked.promised("9" * 32, End(3, 9, 400), is_clean=True)
    assert asked.verdict("2" * 32) is None  # no member
    asked.promised("3" * 32, End(3, 9, 800), is_clean=False)
    assert asked.verdict("2" * 32) is None  # damaged
    asked.promised("1" * 32, End(2, 9, 900), is_clean=True)
    assert asked.verdict("2" * 32) == Lead(("b", "a"))
    asked.promised("3" * 32, End(3, 9, 408), is_clean=True)
    assert asked.verdict("2" * 32) == GiveWay("c")


@pytest.mark.parametrize(
    ("members", "copies", "needed"), [(1, 1, 1), (2, 2, 1), (3, 2, 2), (3, 3, 1), (5, 3, 3)]
)
def test_promises_and_confirmations_overlap_in_a_copy(members, copies, needed):
    """A + T > N."""
    every = tuple(Member(f"r{n}", f"{n}" * 32) for n in range(members))

    assert Promises(three(members=every, copies=copies)).needed == needed
    assert copies + needed == members + 1


def confirming(now, *names, limits=ONE_ALONE):
    """The primary b of three, with these copies whole at mark 1."""
    made = Confirmation(now, THREE[1], limits, 100, 100)
    made.written = 1
    for one in THREE:
        if one.name in names:
            made.joined(one, 100)
            made.whole(one.copy_id, 1)
    return made


def test_one_of_three_that_stalls_keeps_nobody_waiting():
    """Two of three confirm; it is removed when it was silent for lost_s, not before."""
    made = confirming(three(), "a")
    made.synced(1)
    assert not made.is_confirmed(1)
    made.acked("1" * 32, 1)

    assert made.is_confirmed(1)
    assert made.failures_survived(101) == 0  # c is away, and a take-over takes two
    for at in (110, 120, 130, 140, 150, 160):
        made.heard("1" * 32, at)
    assert made.wanted(159) is None
    assert [one.name for one in made.wanted(160).members] == ["a", "b"]


@pytest.mark.parametrize(("is_all", "before", "after"), [(True, 2, 3), (False, 3, 2)])
def test_another_rule_in_the_configuration_file_holds_when_enough_copies_are_here(
    is_all, before, after
):
    """`confirm` was changed, and the node booted: the members stay, how many confirm does not; and
    nothing waits for a copy that is away."""
    limits = Limits(2, 2, 60, is_all=is_all)
    made = confirming(three(copies=before), "a", "c", limits=limits)
    for one in (THREE[0], THREE[2]):
        made.acked(one.copy_id, 1)
    wanted = made.wanted(100)
    assert (wanted.copies, wanted.version) == (after, made.now.version + 1)
    assert wanted.members == made.now.members
    made.asking(wanted)
    made.synced(1)
    assert made.may_ask(wanted)
    made.settled(wanted)
    assert made.wanted(100) is None
    away = confirming(three(copies=2), "a", limits=Limits(2, 2, 60, is_all=True))
    away.acked("1" * 32, 1)
    assert away.wanted(100) is None


def test_with_confirm_all_the_one_that_is_silent_counts_no_more_soon():
    """Every confirmation waits for it."""
    made = confirming(three(copies=3), "a", limits=Limits(2, 2, 60, is_all=True))
    made.synced(1)
    made.acked("1" * 32, 1)
    assert not made.is_confirmed(1)
    made.heard("1" * 32, 102)

    new = made.wanted(102.5)
    assert ([one.name for one in new.members], new.copies) == (["a", "b"], 2)
    made.asking(new)
    assert made.may_ask(new)
    assert not made.is_confirmed(1)  # both rules hold
    made.settled(new)
    assert made.is_confirmed(1)


def test_both_others_are_given_up_at_once_and_only_where_copies_min_lets_them():
    """One alone of three confirms with copies_min 1; with 2 it waits."""
    for copies_min, left in ((1, ["b"]), (2, None)):
        made = confirming(three(), limits=Limits(copies_min, 2, 60))
        made.synced(1)
        new = made.wanted(103)
        assert (new and [one.name for one in new.members]) == left
        assert made.lacking(103) == (1, 2, "b")


@pytest.mark.parametrize(
    ("here", "copies_min", "left"),
    [
        pytest.param("ac", 2, ["b", "a", "c"], id="both came back with new disks"),
        pytest.param("a", 2, ["b", "a"], id="one came, the other one is silent"),
        pytest.param("a", 3, None, id="the silent one may not be left out"),
    ],
)
def test_with_confirm_all_new_copies_and_silent_members_change_in_one(here, copies_min, left):
    """Each change alone would count an old copy that never comes back: none has enough."""
    made = confirming(three(copies=3), limits=Limits(copies_min, 2, 60, is_all=True))
    made.synced(1)
    for name in here:
        made.joined(Member(name, name * 32, 1), 102)
        made.whole(name * 32, 1)
        made.acked(name * 32, 1)

    new = made.wanted(102.5)

    assert (new and [one.name for one in new.members]) == left
    if new is not None:
        made.asking(new)
        assert made.may_ask(new)
        assert not made.is_confirmed(1)  # the arbiter may have the old rule
        made.settled(new)
        assert made.is_confirmed(1)


def test_a_silent_member_stays_where_a_new_copy_is_enough():
    """The fewer members change the more failures are survived."""
    made = confirming(three(), limits=Limits(1, 2, 60))
    made.synced(1)
    made.joined(Member("c", "c" * 32, 1), 102)
    made.whole("c" * 32, 1)
    made.acked("c" * 32, 1)

    assert [one.copy_id[0] for one in made.wanted(102.5).members] == ["1", "2", "c"]


def test_a_name_has_one_copy_that_counts():
    """The one that joined last."""
    made = confirming(three(), "a")
    made.synced(1)
    made.acked("1" * 32, 1)
    for number, copy_id in enumerate(("d" * 32, "c" * 32)):
        made.joined(Member("c", copy_id, 1), 101 + number / 10)
        made.whole(copy_id, 1)
        made.acked(copy_id, 1)

    new = made.wanted(101.2)
    assert [one.copy_id[0] for one in new.members] == ["1", "2", "c"]


def test_the_copy_of_a_disk_that_is_lost_does_not_come_back_for_the_new_one():
    """It is heard for a while still: the two took turns, ten times a second, and after a take-over
    in the wrong moment the new one's promise was none."""
    made = confirming(three(), "a", "c")
    made.synced(1)
    for number in "13":
        made.acked(number * 32, 1)
    made.joined(Member("c", "c" * 32, 1), 101.1)
    made.whole("c" * 32, 1)
    made.acked("c" * 32, 1)
    new = made.wanted(101.2)
    assert [one.copy_id[0] for one in new.members] == ["1", "2", "c"]
    made.asking(new)
    made.settled(new)

    assert made.wanted(101.3) is None


def test_a_removal_and_a_silence_together_leave_copies_min():
    """Each was checked for itself; the removal waits until the silent one is back."""
    made = confirming(three(), "a", "c", limits=Limits(2, 2, 60))
    made.synced(1)
    for one in "13":
        made.acked(one * 32, 1)
    assert made.remove("c", 101) == ""
    for at in range(101, 165):
        made.heard("3" * 32, at)

    assert made.wanted(164) is None
    made.heard("1" * 32, 164)
    assert [one.name for one in made.wanted(164).members] == ["a", "b"]


def test_a_copy_that_has_all_of_three_survives_one_failure():
    """And with confirm ALL two."""
    for copies, survives in ((2, 1), (3, 2)):
        made = confirming(three(copies=copies), "a", "c")
        made.synced(1)
        made.acked("1" * 32, 1)
        made.acked("3" * 32, 1)
        assert made.failures_survived(101) == survives


def test_a_tail_is_torn_where_a_sector_is_still_zero_and_else_damaged(tmp_path):
    """What is damaged may have been confirmed: such a copy does not count for a take-over."""
    one = LogCopy(REAL_DISK, tmp_path)
    assert one.tail() == (End(), False)
    header, data = segment(1, 3, b"first   ", b"s" * 1500)
    one.take(Segment(0, 1, 8192, ".log"), header)
    one.take(Write(0, 1, 64, crc32(data)), data)
    one.sync()
    end, file = End(3, 1, 64 + len(data)), tmp_path / f"{1:016d}.log"
    assert one.tail() == (end, True)
    whole = file.read_bytes()

    def now():
        """As another process finds it."""
        one.close()
        return one.tail()

    file.write_bytes(whole[:1024] + bytes(512) + whole[1536:])
    torn_at, is_clean = now()
    assert (torn_at < end, is_clean) == (True, True)

    file.write_bytes(whole[:1024] + b"x" + whole[1025:])
    assert now() == (torn_at, False)
    file.write_bytes(bytes(64) + whole[64:])
    assert not now()[1]
    one.close()


def test_a_copy_promises_when_the_primary_before_was_silent_for_a_lease():
    """Until then that one may answer what needs no record."""
    one = copy()
    assert one.accepts(3, "a", 4)
    one.heard(104)

    assert not one.may_promise(4, "c", 2, 108)
    assert one.may_promise(4, "c", 2, 109)
    one.left()
    assert one.may_promise(4, "c", 2, 105)


def test_whoever_goes_furthest_is_preferred_and_one_that_gave_way_waits():
    """The lease is given back to it; it does not wait for silence."""
    one = copy()
    assert one.decide(Standing(three(epoch=3, primary="a", start=4), None, "b"), 101) == Campaign(5)
    one.won(three(epoch=4), 101)

    one.gave_back(102)

    assert isinstance(one.decide(Standing(three(), None, "c"), 103), Follow)
    assert isinstance(one.decide(Standing(three()), 106), Follow)
    assert one.decide(Standing(three()), 107) == Campaign(5)
    assert one.decide(Standing(three(), None, "b"), 103) == Campaign(5)
    assert one.promised == 4


def test_a_group_is_not_shrunk_to_copies_that_lack_what_older_terms_confirmed():
    """At the beginning of a term nothing of it is confirmed, which any copy has."""
    made = confirming(three(), limits=ONE_ALONE)
    made.written = 2
    made.joined(THREE[2], 100)  # c is here, and gets older bytes first
    made.synced(2)

    new = structs.replace(three(version=6), members=THREE[1:])
    made.asking(new)
    assert not made.may_ask(new)
    made.whole("3" * 32, 2)
    assert not made.may_ask(new)
    made.acked("3" * 32, 2)
    assert made.may_ask(new)


def test_a_copy_that_was_promoted_confirms_alone_until_copies_min_count_again():
    """An operator has said that it goes on; two that count are never one again by that."""
    alone = three(members=THREE[1:2], copies=1, is_forced=True)
    made = confirming(alone, limits=Limits(copies_min=2))
    made.synced(1)
    assert made.is_confirmed(1)
    made.joined(THREE[2], 101)
    made.whole("3" * 32, 1)
    made.acked("3" * 32, 1)

    new = made.wanted(101)

    assert (len(new.members), new.copies, new.is_forced) == (2, 2, False)


def test_an_operator_is_told_which_copy_lags_and_for_how_long():
    """By state, not by a clock of the other machine."""
    made = confirming(three(), "a", "c")
    made.synced(1)
    made.acked("1" * 32, 1)
    rows = {row["replica"]: row for row in made.describe(101)}
    assert (rows["a"]["state"], rows["a"]["lag_s"]) == ("IN_SYNC", 0)
    assert (rows["c"]["state"], rows["c"]["lag_s"]) == ("CATCHING_UP", 1)

    assert {row["state"] for row in made.describe(103)} == {"AWAY"}
    assert made.remove("c", 101) == ""
    assert made.describe(101)[1]["state"] == "REMOVED"


@pytest.fixture
def short(tmp_path):
    """A copy alone whose log ends before what was confirmed, and what an arbiter has of it."""
    state = CopyState(LOG, "2" * 32, 8, 3)
    write_state(REAL_DISK, tmp_path, state)
    one = LogCopy(REAL_DISK, tmp_path)
    header, data = segment(1, 3, b"is there")
    one.take(Segment(0, 1, 4096, ".log"), header)
    one.take(Write(0, 1, 64, crc32(data)), data)
    one.sync()
    one.close()
    told = ConfirmedPlace(REAL_DISK, tmp_path)
    told.begin()
    told.tell(Place(2, 999))
    now = Configuration(5, LOG, 3, "a", 4, (Member("b", "2" * 32, 7),))

    def follows(configuration):
        arbiter = MemoryArbiter(MemoryEngine(lambda: 100.0, 5.0), "b")
        arbiter.begin(configuration)
        group = Group("n", "b", {}, 5.0, Limits(1, 2.0, 20.0))
        made = Follower(
            group, tmp_path, REAL_DISK, arbiter, copy(), state, *[lambda *_: None] * 2,
            clock_s=lambda: 100.0,
        )  # fmt: skip
        made.begin()
        return made.step(0)

    return follows, now


def test_a_copy_that_lacks_what_was_confirmed_leads_when_an_operator_says_so(short, tmp_path):
    """--lossy is said of one epoch: by itself it does not lead, nor for what was said before."""
    follows, now = short
    assert follows(now) is None
    before = structs.replace(now, lossy=(2,), is_forced=True)
    assert follows(before) is None
    assert read_damages(REAL_DISK, tmp_path).keys() == {2}

    won = follows(structs.replace(now, lossy=(2, 3), is_forced=True))

    assert won is not None
    assert won.configuration.epoch == 4
    assert read_damages(REAL_DISK, tmp_path) == {}
    assert confirmed_place(tmp_path) == NOTHING


def test_a_place_behind_what_is_cut_is_confirmed_no_more(tmp_path):
    """The copies that have more follow one that an operator had lead without."""
    told = ConfirmedPlace(REAL_DISK, tmp_path)
    told.lower(Place(1, 64))
    assert confirmed_place(tmp_path) is None
    told.begin()
    told.tell(Place(2, 500))

    ConfirmedPlace(REAL_DISK, tmp_path).lower(Place(2, 600))
    assert confirmed_place(tmp_path) == Place(2, 500)
    told.lower(Place(2, 100))
    assert confirmed_place(tmp_path) == Place(2, 100)
    told.tell(Place(2, 500))
    assert confirmed_place(tmp_path) == Place(2, 500)


def test_a_replica_that_was_added_meanwhile_is_followed(tmp_path):
    """Its address is in hms.conf by now: nobody has to boot this one again."""
    state = CopyState(LOG, "2" * 32, 8, 3)
    write_state(REAL_DISK, tmp_path, state)
    engine = MemoryEngine(lambda: 100.0, 5.0)
    arbiter = MemoryArbiter(engine, "b")
    arbiter.begin(Configuration(5, LOG, 3, "c", 4, MEMBERS))
    engine.leader, engine.leader_until_s = Leader("c", 3), 200.0
    known, waits, lines = {}, [], []

    def line(group, primary):
        lines.append(group.peers[primary].address)
        return SimpleNamespace(
            primary=primary, say=lambda *_: None, wait=lambda _: None, received=lambda: iter([]),
            is_lost=lambda: False,
        )  # fmt: skip

    made = Follower(
        Group("n", "b", {}, 5.0, Limits(1, 2.0, 20.0)), tmp_path, REAL_DISK, arbiter, copy(),
        state, waits.append, lambda: None, line, lambda: 100.0, learn=lambda: known,
    )  # fmt: skip
    made.begin()
    made.step(0)
    assert lines == []
    assert "[replica.c], which hms.conf here does not have" in waits

    known["c"] = Peer("c", "tcp://127.0.0.1:9")
    made._looked_s = 0.0
    made.step(0)

    assert lines == ["tcp://127.0.0.1:9"]


def test_what_was_read_of_a_log_that_was_cut_says_nothing_of_its_end(tmp_path):
    """A copy would answer for bytes that it does not have."""
    state, read = CopyState(LOG, "2" * 32, 8, 3), ReadUpTo(5, 900, 17, 1)
    applies = SimpleNamespace(verified=read)
    made = Follower(
        Group("n", "b", {}, 5.0, Limits()), tmp_path, REAL_DISK, None, copy(), state,
        lambda _: None, lambda: None, applies=applies,
    )  # fmt: skip
    assert made._verified() is None
    made._confirmed.tell(Place(5, 900))
    assert made._verified() == read
    made._confirmed.lower(Place(5, 100))
    assert made._verified() is None


def test_the_end_of_a_segment_that_was_read_and_begun_here_is_known(tmp_path):
    """Neither its records nor the zeros behind them are read again, which took 0.1 s of each
    take-over; what was written and does not verify is damage as before."""
    header, data = segment(1, 3, b"first   ", b"second  ")
    salt = unpack_segment_header(header).salt
    known, reads = [None], []

    class Counted(type(REAL_DISK)):
        def pread(self, fd, size, offset):
            reads.append(offset)
            return super().pread(fd, size, offset)

    one = LogCopy(Counted(), tmp_path, verified=lambda: known[0])
    one.take(Segment(0, 1, 1 << 24, ".log"), header)
    one.take(Write(0, 1, 64, crc32(data)), data)
    one.sync()
    end = End(3, 1, 64 + len(data))
    known[0] = ReadUpTo(1, end.offset, 3, salt)
    reads.clear()
    assert one.tail() == (end, True)
    assert [at for at in reads if at not in (0, end.offset)] == []

    one.take(Write(0, 1, end.offset, 0), b"x" * 600)
    assert one.tail() == (end, False)
    one.close()


def test_the_address_of_a_copy_that_follows_is_kept_for_it():
    """A port that is taken is told when it boots, not when it is to lead; nobody listens there, so
    who calls is refused at once."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        group = Group("n", "b", {"b": Peer("b", f"tcp://127.0.0.1:{port}")}, 5.0, Limits())
        with pytest.raises(ReplicaAddressInUse):
            Held(group)
    held = Held(group)
    with socket.socket() as caller, pytest.raises(ConnectionRefusedError):
        caller.connect(("127.0.0.1", port))
    with socket.socket() as thief, pytest.raises(OSError, match="in use"):
        thief.bind(("127.0.0.1", port))

    leads = PrimarySocket(group)

    with socket.create_connection(("127.0.0.1", port), timeout=10):
        leads.close()
    held.close()


def test_a_link_is_asked_for_what_is_there_only(monkeypatch):
    """To be told that there is nothing costs an error, and that several system calls: a lone send
    would pay it four times."""
    asked, me = [], threading.get_ident()
    recv = zmq.Socket.recv

    def counted(self, *words, **options):
        if threading.get_ident() == me:
            asked.append(self)
        return recv(self, *words, **options)

    monkeypatch.setattr(zmq.Socket, "recv", counted)
    peers = {name: Peer(name, f"tcp://127.0.0.1:{free_port()}") for name in "ab"}
    leads = PrimarySocket(Group("n", "a", peers, 5.0, Limits()))
    follows = FollowerSocket(Group("n", "b", peers, 5.0, Limits()), "a")
    try:
        follows.say("l", "b", 1, Beat(1.0))
        wait_until(lambda: leads.wait(0.1) or leads.socket in leads._ready)
        assert len(list(leads.received())) == 1
        asked.clear()
        leads.wake()
        wait_until(lambda: leads.wait(0.1) or leads._wake in leads._ready)
        assert list(leads.received()) == []
        wait_until(lambda: follows.wait(0.1) or (not follows.is_lost() and follows._is_up))
        asked.clear()
        follows.wait(0)
        assert not follows.is_lost()
        assert list(follows.received()) == []
        assert asked == []
    finally:
        follows.close()
        leads.close()


def test_a_link_that_is_lost_is_noticed_by_the_next_wait():
    """The machine of a process that ends closes its connections."""
    peers = {name: Peer(name, f"tcp://127.0.0.1:{free_port()}") for name in "ab"}
    leads = PrimarySocket(Group("n", "a", peers, 5.0, Limits()))
    follows = FollowerSocket(Group("n", "b", peers, 5.0, Limits()), "a")
    try:
        wait_until(lambda: follows.wait(0.1) or (not follows.is_lost() and follows._is_up))
    finally:
        leads.close()
    wait_until(lambda: follows.wait(0.1) or follows.is_lost())
    follows.close()


@pytest.fixture
def campaigns(monkeypatch, tmp_path):
    """Campaigns of b, each won; by: who promises, binds: what its socket does at each."""

    def run(by, binds, cause="LOST", waits=lambda _: None):
        resigned, given = [], [lambda one=one: one for one in binds]
        one = copy()
        monkeypatch.setattr(replicating, "PrimarySocket", lambda _group: raised(given.pop(0)()))
        candidate = SimpleNamespace(
            promises=SimpleNamespace(needed=len(by)), run=lambda _pauses: Lead(by), came={}
        )
        monkeypatch.setattr(replicating, "Candidate", lambda *_, copy: candidate)  # noqa: ARG005

        def follows():
            one.won(Configuration(6, LOG, 4 + len(resigned), "b", 8, MEMBERS), 100)
            took = TakeOver("a", cause, None, 100)
            return Won(None, float("-inf"), took=took)

        arbiter = SimpleNamespace(resign=lambda: resigned.append("b"))
        follower = SimpleNamespace(run=follows, copy=None)
        group = Group("n", "b", {}, 5.0, Limits())
        about = SimpleNamespace(store=tmp_path), arbiter, one, follower
        won, _, _, _ = replicating._won(group, dict, *about, waits, lambda: None)
        return won, resigned

    return run


def raised(what):
    if isinstance(what, BaseException):
        raise what
    return what


def test_a_copy_that_promised_just_now_is_not_silent(campaigns):
    """With copies_min = 1 the next primary left it out, and confirmed alone until it joined."""
    assert campaigns(("b",), ["socket"])[0].silent_since_s == float("-inf")
    assert now_s() - campaigns(("b", "c"), ["socket"])[0].silent_since_s < 60


@pytest.mark.parametrize("cause", ["LOST", "BOOT"])
def test_a_copy_that_is_to_lead_waits_for_nobody_any_more(campaigns, cause):
    """While it read its log, which may take minutes, its status was that it follows a, in sync. One
    that leads as soon as it is booted is not taken for a standby."""
    told = []

    campaigns(("b",), ["socket"], cause, told.append)

    said = "the rest of its own log to be read: it leads in epoch 4"
    assert told == ([said] if cause == "LOST" else [])


def test_one_that_cannot_listen_gives_the_lease_back_and_follows(campaigns):
    """Its process ended; now another one may lead, or this one when it has its address."""
    taken = ReplicaAddressInUse(address="tcp://127.0.0.1:9", detail="Address already in use")

    won, resigned = campaigns(("b",), [taken, "socket"])

    assert resigned == ["b"]
    assert won is not None


def test_the_status_reads_no_disk(tmp_path):
    """It is made under the engine's lock: what is damaged is known from the last look."""
    note_damages(REAL_DISK, tmp_path, [Damage(1, 64, "bad")])
    scrubbing = Scrubbing(REAL_DISK, tmp_path, 60)
    scrubbing.look()
    shutil.rmtree(tmp_path)

    assert scrubbing.describe()["damage"] == ["segment 1, offset 64: bad"]


def test_an_arbiter_that_lost_what_it_had_is_told_as_such(tmp_path):
    """Not that the copy is none of the group: a store is not to be moved away for that."""
    begin_copy(REAL_DISK, tmp_path, "b")
    group = Group("n", "b", {}, 5.0, Limits(1, 2.0, 20.0))
    arbiter = MemoryArbiter(MemoryEngine(lambda: 100.0, 5.0), "b")
    config = SimpleNamespace(arbiter=SimpleNamespace(endpoints=["http://127.0.0.1:1"]))

    with pytest.raises(ReplicasNotBegun, match="hms replica init"):
        _state(arbiter, group, config, SimpleNamespace(store=tmp_path, name="n"))


@pytest.mark.parametrize("has_heard", [True, False])
def test_one_that_was_booted_and_heard_no_primary_begins_by_its_own_clock(tmp_path, has_heard):
    """A supervisor booted it, and the primary was gone before it came: nobody here knows for how
    long the node was down. What it was told once it goes on from."""
    state = CopyState(LOG, "2" * 32, 8, 3)
    write_state(REAL_DISK, tmp_path, state)
    arbiter = MemoryArbiter(MemoryEngine(lambda: 100.0, 5.0), "b")
    arbiter.begin(Configuration(5, LOG, 3, "a", 4, (Member("b", "2" * 32, 7),)))
    made = Follower(
        Group("n", "b", {}, 5.0, Limits(1, 2.0, 20.0)), tmp_path, REAL_DISK, arbiter, copy(),
        state, *[lambda *_: None] * 2, clock_s=lambda: 100.0,
    )  # fmt: skip
    made.begin()
    if has_heard:
        made._heard_s = 99.0
        made._read_by_others(Time(5_000))
        made._leadership.left()

    won = made.step(0)

    assert won is not None
    assert won.node_ms(101.0) == (7_000 if has_heard else None)
    said = won.took.describe("b")
    cause, since_s = ("LEFT", 1.0) if has_heard else ("BOOT", None)
    assert (said["from"], said["cause"], said["detection_s"]) == ("a", cause, since_s)


@pytest.mark.parametrize("machine_ms", [5_000, None, -1])
def test_a_copy_says_what_its_clock_says_to_a_primary_that_tells_its_own(tmp_path, machine_ms):
    """One of a release before tells none, and would refuse it; nor is a clock told that is wrong
    beyond use."""
    said = []
    made = Follower(
        Group("n", "b", {}, 5.0, Limits()), tmp_path, REAL_DISK, None, copy(),
        CopyState(LOG, "2" * 32, 8, 3), *[lambda *_: None] * 2, clock_s=lambda: 100.0,
        machine_ms=lambda: machine_ms,
    )  # fmt: skip
    made._link = SimpleNamespace(say=lambda *_: said.append(_[-1]))
    known = [Clock(99.5, 5_000)] if machine_ms == 5_000 else []

    assert made._receive(frame(Beat(99.0))) == BeatAck(99.0)
    assert said == []
    made._receive(frame(Time(7)))
    assert made._receive(frame(Beat(99.5))) == BeatAck(99.5)
    assert said == known
    made._join()
    said.clear()
    made._receive(frame(Beat(99.7)))
    assert said == []


@pytest.mark.parametrize("place", [Place(2, 640), NOTHING, None])
def test_a_hot_standby_says_how_far_it_has_applied_the_log(tmp_path, place):
    """When it is taken in, before what it has is counted, and when it is asked; where a move waits
    it hurries. A warm one says nothing."""
    said, hurried = [], []
    applies = SimpleNamespace(verified=None, place=place, hurry=lambda: hurried.append(1))
    made = Follower(
        Group("n", "b", {}, 5.0, Limits()), tmp_path, REAL_DISK, None, copy(),
        CopyState(LOG, "2" * 32, 8, 3), *[lambda *_: None] * 2, clock_s=lambda: 100.0,
        applies=applies,
    )  # fmt: skip
    made._link = SimpleNamespace(say=lambda *_: said.append(_[-1]))
    known = [] if place is None else [AppliedUpTo(*place)]

    made._receive(frame(Resume()))
    assert said == [Reads(list(FORMATS)), *known]
    made._receive(frame(AskApplied()))
    assert (said[-1:] == known or place is None, hurried) == (True, [])
    made._receive(frame(AskApplied(hurries=True)))
    assert said == [Reads(list(FORMATS)), *known * 3]
    assert hurried == [1]

    applies.verified = SimpleNamespace(lsn=42)
    made._receive(frame(AskApplied()))
    assert place is None or said[-1] == AppliedUpTo(*place, 41)
    assert made.describe()["applied_lsn"] == 41
