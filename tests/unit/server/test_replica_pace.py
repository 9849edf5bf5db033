"""What a copy lacks is read and sent in pieces: what is written meanwhile waits for one at most.

Counted in bytes and turns of the link, never in time. The primary is real, the clock is the test's.
"""

import os
from types import SimpleNamespace

import pytest

from hms.server.arbiter import Configuration, Member
from hms.server.arbiter.memory import MemoryArbiter, MemoryEngine
from hms.server.replicas.catch_up_pace import PIECE_BYTES, RESTS
from hms.server.replicas.confirmation import Limits
from hms.server.replicas.frames import (
    FORMAT,
    Ack,
    Beat,
    ConfirmedUpTo,
    Cut,
    Drop,
    Envelope,
    FilePart,
    Join,
    Keep,
    PastPart,
    Reads,
    Rejoin,
    Segment,
    Whole,
    Write,
    decode,
    encode,
)
from hms.server.replicas.leadership import Leadership
from hms.server.replicas.link import Group, Peer
from hms.server.replicas.log_copy import FILES_FOLDER
from hms.server.replicas.primary import (
    AWAITED_S,
    FILE_WINDOW_BYTES,
    SHADOW_FRAMES,
    WINDOW_FRAMES,
    Primary,
)
from hms.store.journal.disk import RealDisk
from hms.store.journal.format import (
    SEGMENT_HEADER_BYTES,
    Author,
    pack_seal,
    pack_segment_header,
    unpack_segment_header,
)
from hms.store.journal.segment_walk import HISTORY_SUFFIX, segment_file

LOG = "ab" * 16
ME, OTHER = Member("a", "1" * 32, 4), "2" * 32
READ_MAX = 2 * PIECE_BYTES + SEGMENT_HEADER_BYTES
"""In a turn: a piece, and the heads that say what it is."""


class CountingDisk(RealDisk):
    """Counts what is read. holds_lock: whether somebody who writes would wait meanwhile."""

    def __init__(self):
        self.read, self.read_under_lock = 0, 0
        self.holds_lock = lambda: False

    def pread(self, fd, size, offset):
        data = super().pread(fd, size, offset)
        self.read += len(data)
        self.read_under_lock += len(data) * self.holds_lock()
        return data


class Leader:
    """a leads a log of `sizes`, segments that were written before by so many bytes each, and one
    that is written now; b comes with nothing."""

    def __init__(self, folder, sizes, segment_bytes, history=(), window_bytes=64 << 20):
        self.disk, self.told, self.taken, self.now_s = CountingDisk(), [], 0, 1000.0
        self.folder = folder
        engine = MemoryEngine(lambda: 1000.0, 30.0)
        arbiter = MemoryArbiter(engine, "a")
        arbiter.begin(Configuration(5, LOG, 3, "a", 3, (ME,), 1))
        leadership = Leadership("a", ME.copy_id, 4, 3, LOG, lease_s=30.0)
        leadership.begin(1000.0)
        granted = arbiter.campaign(5, "a", 4)
        leadership.won(granted, 1000.0)
        peers = {name: Peer(name, f"tcp://{name}") for name in "ab"}
        socket = SimpleNamespace(send=self.hears, received=list, wake=lambda: None)
        self.primary = Primary(
            Group("n", "a", peers, 30.0, Limits(1, 1.0, 60.0), window_bytes=window_bytes), folder,
            self.disk, arbiter, leadership, granted, socket,
            silent_since_s=1000.0, clock_s=lambda: self.now_s,
        )  # fmt: skip
        self.primary.start = lambda: None
        self.disk.holds_lock = self.primary._changed._lock.locked
        for number, size in enumerate([*history, *sizes, 0], 1):
            suffix = {"suffix": HISTORY_SUFFIX} if number <= len(history) else {}
            header = pack_segment_header(Author(7, granted.epoch), number, number, 1)
            with segment_file(folder, number, **suffix).open("wb") as file:
                file.write(header + os.urandom(size))
                file.truncate(segment_bytes)
        self.number, self.end = number, SEGMENT_HEADER_BYTES
        self.primary.begun(number, header, segment_bytes)
        self.primary.synced()
        self.primary._serve_once()

    def hears(self, _route, envelope, data):
        self.told.append((decode([envelope, data])[0].said, len(data)))

    def says(self, said):
        envelope = Envelope(FORMAT, LOG, self.primary.epoch, "b", 7, said)
        self.primary._receive(b"route", [encode(envelope), b""])

    def joins(self):
        self.says(Join(OTHER, 3, {}, {}, [], []))
        self.says(Reads([self.primary._format]))

    def writes(self, *, is_confirmed=True, data=b"12345678"):
        with segment_file(self.folder, self.number).open("r+b") as file:
            file.seek(self.end)
            file.write(data)
        self.primary.written(self.number, self.end, data)
        self.end += len(data)
        if is_confirmed:
            self.primary.synced()

    def turn(self):
        """What is told, and bytes that are read."""
        self.disk.read, before = 0, len(self.told)
        self.primary._serve_once()
        return self.told[before:], self.disk.read

    def takes(self):
        """All that is on its way to b is taken, and it says so."""
        [link] = self.primary._links.values()
        self.says(Ack(0, link.sent))

    def until(self, is_so, turns_max):
        """What was told in each turn, until one of it is so."""
        turns = []
        while not turns or not any(is_so(said) for said, _ in turns[-1][0]):
            turns.append(self.turn())
            self.takes()
            assert len(turns) <= turns_max
        return turns


def behind(said):
    """It is of what a copy lacks, not of what is written now."""
    return isinstance(said, Write | FilePart | PastPart) and not getattr(said, "mark", 0)


MIB = 1 << 20


def test_a_turn_sends_a_piece_of_what_a_copy_lacks(tmp_path):
    """Also where the window has room for many, and reads no segment to know where it ends."""
    leader = Leader(tmp_path, [MIB - 64, MIB - 64], MIB)
    leader.joins()
    turns = leader.until(lambda said: isinstance(said, Whole), 20)
    sent = [[size for said, size in told if behind(said)] for told, _ in turns]
    assert max(len(sizes) for sizes in sent) == 1
    assert max(sum(sizes) for sizes in sent) == PIECE_BYTES
    assert sum(map(sum, sent)) == 2 * (MIB - SEGMENT_HEADER_BYTES)
    assert max(read for _, read in turns) <= READ_MAX


def test_a_segment_in_which_little_was_written_is_looked_at_in_pieces(tmp_path):
    """Where it ends is not known after a boot: it may be zeros for 64 MiB."""
    leader = Leader(tmp_path, [100], 16 * MIB)
    leader.joins()
    turns = leader.until(lambda said: isinstance(said, Whole), 80)
    assert max(read for _, read in turns) <= READ_MAX
    sent = [size for told, _ in turns for said, size in told if behind(said)]
    assert sum(sent) == 104  # to the next place of a record


@pytest.mark.parametrize("is_written", [True, False])
def test_the_window_is_small_while_somebody_writes(tmp_path, is_written):
    """What is confirmed now waits behind no more bytes at the copy's disk."""
    leader = Leader(tmp_path, [32 * MIB - 64], 32 * MIB)
    leader.joins()
    count = 0
    for _ in range(3 * WINDOW_FRAMES):
        if is_written:
            leader.writes()
        told, _ = leader.turn()
        assert not leader.primary._outbox  # what was written has gone before the next piece
        count += sum(behind(said) and size > 8 for said, size in told)
    head = 3  # Resume, the segment, and where it is cut
    assert count == (SHADOW_FRAMES if is_written else WINDOW_FRAMES) - head
    leader.takes()
    assert leader.primary._has_more()


def test_the_next_piece_waits_for_a_confirmation_and_not_for_long(tmp_path):
    """Who sends the pieces hears the answers: each piece would hold one up. Where none comes, as
    copies are away, what a copy lacks goes on."""
    leader = Leader(tmp_path, [32 * MIB - 64], 32 * MIB)
    leader.joins()
    leader.turn()

    def pieces(turns=1):
        leader.takes()
        told = [said for _ in range(turns) for said, _ in leader.turn()[0]]
        return sum(behind(said) for said in told)

    assert pieces() == 1
    leader.writes(is_confirmed=False)
    assert pieces(3) == 0
    assert leader.primary._has_more()
    leader.primary.synced()
    assert pieces() == 1
    leader.writes(is_confirmed=False)
    assert pieces(3) == 0
    leader.now_s += AWAITED_S
    assert pieces() == 1


def test_nothing_is_read_while_who_writes_waits(tmp_path):
    """Neither heads of segments when a copy comes, nor what it lacks."""
    leader = Leader(tmp_path, [1000] * 20, 4096)
    leader.joins()
    leader.until(lambda said: isinstance(said, Whole), 80)
    assert leader.disk.read_under_lock == 0


def test_files_and_history_come_in_pieces_too(tmp_path):
    """A file of a message may be of any size."""
    name, size = "0" * 15 + "1.body", 5 * PIECE_BYTES + 3
    leader = Leader(tmp_path, [], MIB, history=[MIB - 64])
    (tmp_path / FILES_FOLDER).mkdir()
    file = tmp_path / FILES_FOLDER / name
    leader.primary._files_here = lambda: {name} if file.exists() else set()
    file.write_bytes(os.urandom(size))
    leader.joins()
    turns = leader.until(lambda said: isinstance(said, PastPart) and said.is_last, 30)
    parts = [size for told, _ in turns for said, size in told if isinstance(said, FilePart)]
    assert parts == [PIECE_BYTES] * 5 + [3]
    assert max(sum(size for said, size in told if behind(said)) for told, _ in turns) <= PIECE_BYTES
    assert max(read for _, read in turns) <= READ_MAX


def test_a_file_that_goes_on_its_way_is_left_out(tmp_path):
    """Its message was consumed meanwhile; the copy gets no half of it under its name."""
    name = "0" * 15 + "1.body"
    leader = Leader(tmp_path, [], MIB)
    (tmp_path / FILES_FOLDER).mkdir()
    file = tmp_path / FILES_FOLDER / name
    leader.primary._files_here = lambda: {name}
    file.write_bytes(bytes(3 * PIECE_BYTES))
    leader.joins()
    leader.turn()
    file.unlink()
    turns = leader.until(lambda said: isinstance(said, Whole), 10)
    parts = [said for told, _ in turns for said, _ in told if isinstance(said, FilePart)]
    assert [said.is_last for said in parts] in ([], [False])


WINDOW_BYTES = 8 * MIB
"""The least that replica_window_bytes may be."""


def on_the_way(told):
    """Bytes of the log that b has not taken, by what was told and not by what the primary counts:
    nothing of what is counted has been taken."""
    return sum(size for said, size in told if isinstance(said, Write))


def test_a_copy_that_stands_still_has_no_more_than_its_window_on_its_way(tmp_path):
    """It joins again, and gets the rest from the files: all of it, to the byte."""
    leader = Leader(tmp_path, [], 64 * MIB, window_bytes=WINDOW_BYTES)
    leader.joins()
    leader.until(lambda said: isinstance(said, Whole), 10)
    leader.takes()
    before = len(leader.told)
    turns = 0
    while not any(isinstance(said, Rejoin) for said, _ in leader.told):
        leader.writes(data=os.urandom(3 * MIB // 2))
        leader.turn()
        turns += 1
        assert turns <= WINDOW_BYTES // MIB
    sent = on_the_way(leader.told[before:])
    assert WINDOW_BYTES - 2 * MIB < sent <= WINDOW_BYTES
    leader.writes(data=bytes(range(256)) * 4096)
    leader.turn()
    assert on_the_way(leader.told[before:]) == sent  # nothing goes to who is to join

    leader.now_s += AWAITED_S
    leader.told.clear()
    leader.joins()
    turns = leader.until(lambda said: isinstance(said, Whole), 60)
    pieces = sum(size for told, _ in turns for said, size in told if isinstance(said, Write))
    assert pieces == leader.end - SEGMENT_HEADER_BYTES


def test_what_a_copy_lacks_takes_half_of_the_window(tmp_path):
    """What is written meanwhile has room beside it, so that it need not join again and again."""
    leader = Leader(tmp_path, [32 * MIB - 64], 32 * MIB, window_bytes=WINDOW_BYTES)
    leader.joins()
    for _ in range(3 * WINDOW_FRAMES):
        leader.turn()
    sent = on_the_way(leader.told)
    assert WINDOW_BYTES // 2 - PIECE_BYTES <= sent <= WINDOW_BYTES // 2
    leader.writes(data=os.urandom(WINDOW_BYTES // 4))
    leader.turn()
    assert not any(isinstance(said, Rejoin) for said, _ in leader.told)
    assert on_the_way(leader.told) == sent  # it is of a segment that follows
    leader.takes()
    leader.now_s += AWAITED_S
    leader.until(lambda said: isinstance(said, Whole), 200)
    assert not any(isinstance(said, Rejoin) for said, _ in leader.told)


NAME = f"{1:016x}-{2:08x}-{3:064x}"


def file_arrives(leader, size, name=NAME):
    """Its message is sent now; the file's bytes are zeros that take no room on the disk."""
    folder = leader.folder / FILES_FOLDER
    folder.mkdir(exist_ok=True)
    with (folder / name).open("wb") as file:
        file.truncate(size)
    leader.primary.file_there(name)


def whole(folder, **kwargs):
    """A leader whose other copy has the log."""
    leader = Leader(folder, [], 64 * MIB, **kwargs)
    leader.joins()
    leader.until(lambda said: isinstance(said, Whole), 10)
    leader.takes()
    leader.told.clear()
    return leader


@pytest.mark.parametrize(
    ("window_bytes", "most"), [(64 * MIB, FILE_WINDOW_BYTES), (WINDOW_BYTES, WINDOW_BYTES // 2)]
)
def test_a_file_is_on_its_way_a_window_at_a_time(tmp_path, window_bytes, most):
    """However large it is and slow the copy: what is queued is in the memory of the primary. All
    of it comes, once, in order, and its record behind it (H11)."""
    leader, size = whole(tmp_path, window_bytes=window_bytes), 64 * MIB + 5
    file_arrives(leader, size)
    leader.writes()
    queued = turns = taken = 0
    while not any(isinstance(said, Write) for said, _ in leader.told):
        leader.turn()
        leader.turn()  # the copy has said nothing since
        queued = max(queued, sum(size for _, size in leader.told[taken:]))
        taken = len(leader.told)
        leader.takes()
        turns += 1
        assert turns <= 2 * size // most
    assert most - PIECE_BYTES < queued <= most
    told = [said for said, _ in leader.told if isinstance(said, FilePart | Write)]
    parts = [said for said in told if isinstance(said, FilePart)]
    assert [said.offset for said in parts] == list(range(0, size, PIECE_BYTES))
    assert [said.is_last for said in parts] == [False] * (len(parts) - 1) + [True]
    assert {said.mark for said in parts[:-1]} == {0}
    assert 0 < parts[-1].mark < told[-1].mark
    assert told.index(parts[-1]) < told.index(next(o for o in told if isinstance(o, Write)))


def test_a_place_behind_a_file_is_told_when_what_is_before_it_has_gone(tmp_path):
    """A log that ends before the place that its copy was told is damaged; and what says which
    segments stay comes after those segments."""
    leader = whole(tmp_path)
    file_arrives(leader, 2 * FILE_WINDOW_BYTES)
    leader.writes()
    leader.primary.kept()
    leader.now_s += 1.0
    for _ in range(3):
        leader.turn()
        leader.now_s += 1.0
    assert not any(isinstance(said, ConfirmedUpTo | Keep) for said, _ in leader.told)
    leader.until(lambda said: isinstance(said, ConfirmedUpTo), 20)
    kinds = [type(said) for said, _ in leader.told if not isinstance(said, FilePart | Beat)]
    assert kinds.index(Write) < kinds.index(Keep) < kinds.index(ConfirmedUpTo)


def test_a_link_that_breaks_in_a_file_begins_it_again_and_stays_within_the_window(tmp_path):
    """What waited behind it is in the files of the log by then."""
    leader, size = whole(tmp_path), 3 * FILE_WINDOW_BYTES
    file_arrives(leader, size)
    leader.writes()
    leader.turn()
    leader.told.clear()
    leader.joins()
    turns = leader.until(lambda said: isinstance(said, Whole), size // PIECE_BYTES + 20)
    parts = [said for told, _ in turns for said, _ in told if isinstance(said, FilePart)]
    assert [said.offset for said in parts] == list(range(0, size, PIECE_BYTES))
    assert [said.is_last for said in parts] == [False] * (len(parts) - 1) + [True]
    assert not [link.held for link in leader.primary._links.values() if link.held]


def test_what_waits_behind_a_file_is_bounded_as_what_is_on_its_way(tmp_path):
    """The copy joins again, and gets it from the files."""
    leader = whole(tmp_path, window_bytes=WINDOW_BYTES)
    file_arrives(leader, 8 * WINDOW_BYTES)
    written = 0
    while not any(isinstance(said, Rejoin) for said, _ in leader.told):
        leader.writes(data=bytes(MIB))
        leader.turn()
        written += MIB
        assert written <= WINDOW_BYTES + MIB
    assert not any(isinstance(said, Write) for said, _ in leader.told)


def test_a_file_that_goes_on_its_way_holds_nothing_up(tmp_path):
    """Its message was consumed meanwhile."""
    leader = whole(tmp_path)
    file_arrives(leader, 4 * FILE_WINDOW_BYTES)
    leader.writes()
    leader.turn()
    (leader.folder / FILES_FOLDER / NAME).unlink()
    leader.until(lambda said: isinstance(said, Write), 3)
    assert not any(said.is_last for said, _ in leader.told if isinstance(said, FilePart))


def under_load(leader, data, turn_s=0.005):
    """A turn in which somebody writes, and the copy has what was sent so much later."""
    leader.writes(data=data)
    told, _ = leader.turn()
    leader.now_s += turn_s
    leader.takes()
    return told


def test_a_catch_up_rests_while_somebody_writes_little(tmp_path):
    """A burst of one turn, and then nothing for as long as RESTS says; all of it comes."""
    leader = Leader(tmp_path, [8 * MIB - 64], 8 * MIB)
    leader.joins()
    turns, rests = [], 0
    while not any(isinstance(said, Whole) for said in turns):
        assert leader.primary._has_more()
        rests += leader.primary._until_more_s() > AWAITED_S
        turns += [said for said, _ in under_load(leader, bytes(8))]
        assert len(turns) < 1000
    assert rests > RESTS * len([said for said in turns if behind(said)]) / 2


def test_a_catch_up_ends_though_more_is_written_than_it_would_send_with_rests(tmp_path):
    """A third of a piece in a turn would be less than what is added in one."""
    leader = Leader(tmp_path, [8 * MIB - 64], 8 * MIB)
    leader.joins()
    for _ in range(100):
        if any(isinstance(said, Whole) for said, _ in under_load(leader, bytes(PIECE_BYTES // 2))):
            break
    else:
        pytest.fail("it never had all")
    assert not any(isinstance(said, Rejoin) for said, _ in leader.told)


def test_the_size_of_a_file_that_comes_counts_as_written(tmp_path):
    """Else files could come faster than a copy that catches up gets them."""
    leader = Leader(tmp_path, [8 * MIB - 64], 64 * MIB)
    leader.joins()
    while leader.primary._until_more_s() <= AWAITED_S:
        under_load(leader, bytes(8))
        assert len(leader.told) < 100
    file_arrives(leader, 8 * MIB)
    leader.turn()
    assert leader.primary._until_more_s() <= AWAITED_S


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_copy_that_was_away_gets_what_it_lacks_of_the_log_and_no_more(tmp_path, is_kept):
    """Segments that left the log meanwhile, for the history or for good, are not needed: what they
    had that is still waiting stands in later ones. So nothing is kept for it, and it never begins
    anew."""
    size = MIB - SEGMENT_HEADER_BYTES
    leader = Leader(tmp_path, [size, size], MIB, history=[size, size])
    numbers = {n: HISTORY_SUFFIX if n <= 2 else ".log" for n in (1, 2, 3)}
    files = {n: segment_file(tmp_path, n, suffix) for n, suffix in numbers.items()}
    had = {n: file.read_bytes()[:SEGMENT_HEADER_BYTES] for n, file in files.items()}
    if not is_kept:
        files[1].unlink()
        files[2].unlink()

    def joins():
        leader.says(Join(OTHER, 3, had, {3: MIB // 2}, [], []))
        leader.says(Reads([leader.primary._format]))

    joins()
    for said, _ in list(leader.told):
        if isinstance(said, Drop):
            assert said.segments == [1, 2]
            for number in said.segments:
                del had[number]
            joins()
    assert sorted(had) == ([1, 2, 3] if is_kept else [3])
    leader.until(lambda said: isinstance(said, Whole), 20)
    sent = [(said, size) for said, size in leader.told if isinstance(said, Write)]
    assert min(said.number for said, _ in sent) == 3
    assert sum(size for _, size in sent) == MIB // 2 + size


@pytest.fixture
def nearly(tmp_path):
    """A copy has all that was written, and does not count yet."""
    made = Leader(tmp_path, [], 1 << 20)
    made.writes()
    made.joins()
    made.until(lambda said: isinstance(said, Write), 3)
    [link] = made.primary._links.values()
    assert not link.todo
    assert not link.is_whole
    return made


def test_a_copy_that_catches_up_has_a_file_before_the_record_that_names_it(nearly):
    """An operator may have it lead just then: a message had no body (H11)."""
    (nearly.folder / FILES_FOLDER).mkdir()
    (nearly.folder / FILES_FOLDER / NAME).write_bytes(b"body")
    nearly.primary.file_there(NAME)
    at = nearly.end
    nearly.writes()
    nearly.until(lambda said: isinstance(said, Whole), 8)

    told = list(enumerate(nearly.told))
    sent = [n for n, (said, _) in told if isinstance(said, FilePart) and said.is_last]
    wrote = [(n, said, size) for n, (said, size) in told if isinstance(said, Write)]
    named = [n for n, said, size in wrote if said.offset + size > at]
    assert named
    assert sent[0] < named[0]


def test_a_copy_that_catches_up_has_the_next_segment_before_a_seal_tells_of_it(nearly):
    """Killed in between it would be named damaged by whoever reads it alone."""
    file = segment_file(nearly.folder, 1)
    seal = pack_seal(2, unpack_segment_header(file.read_bytes()[:SEGMENT_HEADER_BYTES]).salt)
    header = pack_segment_header(Author(7, nearly.primary.epoch), 2, 2, 1)
    segment_file(nearly.folder, 2).write_bytes(header + bytes(1 << 20))
    nearly.primary.begun(2, header, 1 << 20)
    at = nearly.end
    nearly.writes(data=seal)
    nearly.until(lambda said: isinstance(said, Whole), 8)

    told = list(enumerate(nearly.told))
    begun = [n for n, (said, _) in told if isinstance(said, Segment) and said.number == 2]
    wrote = [(n, said, size) for n, (said, size) in told if isinstance(said, Write)]
    sealed = [n for n, said, size in wrote if said.number == 1 and said.offset + size > at]
    assert sealed
    assert begun[0] < sealed[0]


def test_a_segment_that_leaves_the_log_while_it_comes_is_not_begun_in_the_history(tmp_path):
    """The copy had an empty one there, which nobody filled, and a log that ended in a seal."""
    leader = Leader(tmp_path, [104, 104], 4096)
    first = segment_file(tmp_path, 1)
    data = bytearray(first.read_bytes())
    seal = pack_seal(2, unpack_segment_header(bytes(data[:SEGMENT_HEADER_BYTES])).salt)
    data[168 : 168 + len(seal)] = seal
    first.write_bytes(data)
    leader.joins()
    leader.until(lambda said: isinstance(said, Write), 4)
    segment_file(tmp_path, 2).rename(segment_file(tmp_path, 2, HISTORY_SUFFIX))
    for _ in range(8):
        leader.turn()
        if leader.primary._links:
            leader.takes()

    assert isinstance(leader.told[-1][0], Rejoin)
    assert not [said for said, _ in leader.told if isinstance(said, Segment) and said.number == 2]


def test_what_a_copy_has_behind_a_segment_that_left_the_log_is_cut_before_that_goes(tmp_path):
    """Its last segment is in the history by now, and ends earlier there: what nobody adopted, or an
    operator let go of, went with it and was set aside nowhere (H7)."""
    leader = Leader(tmp_path, [], 4096, history=[100])
    file = segment_file(tmp_path, 1, HISTORY_SUFFIX)
    header = file.read_bytes()[:SEGMENT_HEADER_BYTES]
    seal = pack_seal(2, unpack_segment_header(header).salt)
    file.write_bytes(header + bytes(range(1, 105)) + seal)
    for theirs, cuts in ((168, []), (176, [Cut(1, 168)])):
        leader.told.clear()
        leader.says(Join(OTHER, 3, {1: header}, {1: theirs}, [], []))

        assert [said for said, _ in leader.told] == [*cuts, Drop([1], []), Rejoin()]
