"""A primary: sends what it writes to the other copies, knows what they have, and keeps its lease.

Two threads beside those of the node: the link's has the socket, the keeper asks the arbiter, which
may take its time. A storage worker that has synced a batch waits here until enough copies have it.

For a moment after a batch the link's thread leaves the socket to the storage worker: the next batch
goes to the copies, and their answers are heard, without a hand-over to that thread and back.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from msgspec import structs

from hms.errors.catalogue import (
    ArbiterUnavailable,
    LeadershipLost,
    NodeFailed,
    ReplicaChangeRefused,
    ReplicaFrameBad,
    StoreFenced,
    StoreNotFinalized,
    SwitchoverRefused,
)
from hms.errors.tree import HmsError
from hms.server.arbiter.interface import Arbiter, Configuration, Member
from hms.server.replicas.archive_marks import ArchiveMarks
from hms.server.replicas.catch_up_pace import PIECE_BYTES, CatchUpPace
from hms.server.replicas.catching_up import plan, resumes_at
from hms.server.replicas.confirmation import Confirmation
from hms.server.replicas.frames import (
    BYTES_MAX,
    FORMAT,
    Ack,
    AppliedUpTo,
    Aside,
    AskApplied,
    Beat,
    BeatAck,
    Bye,
    Clock,
    ConfirmedUpTo,
    Cut,
    Digest,
    Digested,
    Drop,
    Envelope,
    FileGone,
    FilePart,
    Inspect,
    Inspected,
    Join,
    Keep,
    Mark,
    Order,
    PastPart,
    Reads,
    Rejoin,
    Resume,
    Said,
    Segment,
    Time,
    Whole,
    Write,
    decode,
    digest_of,
    encode,
)
from hms.server.replicas.leadership import Leadership, Role
from hms.server.replicas.link import Group, Peer, PrimaryLink, now_s
from hms.server.replicas.log_copy import FILES_FOLDER
from hms.server.replicas.machine_clocks import MachineClock
from hms.server.replicas.orders import Orders
from hms.server.replicas.promises import promises_needed
from hms.server.replicas.socket_turn import SocketTurn
from hms.server.replicas.sync_times import SyncTimes
from hms.server.replicas.take_over import TakeOver
from hms.store.files import is_whole_file
from hms.store.journal.confirmed_place import NOTHING, ConfirmedPlace, Place
from hms.store.journal.disk import READ, Disk
from hms.store.journal.format import (
    KIND_SEAL,
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    unpack_record_header,
    unpack_segment_header,
)
from hms.store.journal.segment_walk import (
    HISTORY_SUFFIX,
    LOG_SUFFIX,
    PINNED_SUFFIX,
    all_files,
    last_written,
    opened,
    segment_file,
    segment_numbers,
)
from hms.wire.record_runs import crc32

__all__ = ["Primary"]

log = logging.getLogger("hms.replicas")

WINDOW_FRAMES: Final = 32
"""A copy that catches up has so many pieces on their way to it while nobody writes."""
SHADOW_FRAMES: Final = 4
"""While somebody does, as it syncs them on the way of what is confirmed; and one that has the log,
for the history."""
AWAITED_S: Final = 0.002
"""So long the next piece waits for what was written last to be confirmed: the thread that sends it
is the one that hears the answers."""
REST_S: Final = 0.002
"""So long at once the socket is left to the storage worker: a later answer is counted by then."""
LENT_S: Final = 0.01
"""So long after a batch that is done again and again, and so long that one listens: a slow sync."""
BEHIND_FRAMES_MAX: Final = 1024
"""A copy that has so many on their way to it, or window_bytes of the log, joins again: one that
stands still while the others confirm costs no more memory."""
FILE_WINDOW_BYTES: Final = 8 << 20
"""Of a file that was sent just now so much is on its way at most, whatever its size."""
CATCH_UP_SHARE: Final = 2
"""Of window_bytes what a copy lacks takes a half at most: the rest is for what is written now, as
else a copy that catches up would have to join again and again."""
SILENT_FORMATS: Final = frozenset((0, 2))
"""What a copy reads that does not say it; 0 before the first segment is there."""
BEATS_PER_LEASE: Final = 5
BEATS_PER_TIMEOUT: Final = 2
"""At least, however long the lease is: a copy with nothing to take says no more than its answers,
and one that is silent for replica_timeout_s is away."""
RENEWALS_PER_LEASE: Final = 3
RESIGNS: Final = 3
"""So often the lease is given to a successor, each time for a third of it at most. A lease that
ends by itself goes to the first copy that asks, perhaps to this one again."""
LOOKS_PER_LEASE: Final = 10
JOIN_S: Final = 10.0
PLACE_S: Final = 0.1
"""How often readers of the copies are told up to where they may read."""
FAR_S: Final = 5.0
"""An asynchronous copy that lacks what was written so long ago raises an alert."""
BLOCKED_AFTER_S: Final = 1.0
"""A confirmation that waits for so long behind replica_timeout_s is an alert."""


class _Link:
    """A copy that is connected."""

    def __init__(self, route: bytes, member: Member, *, is_before: bool) -> None:
        self.route, self.member, self.is_before = route, member, is_before
        self.todo: deque[int] = deque()
        """Segments that it gets; the first one from `at` on."""
        self.at: int | None = None
        self.end = 0
        self.unseen: int | None = None
        """The first one has only zeros from there on; None: nobody has looked."""
        self.ends: dict[int, int] = {}
        self.files: deque[str] = deque()
        """Files that it gets before; the first one from `file_at` on."""
        self.file_at = 0
        self.past: deque[int] = deque()
        """Segments of the history that it lacks, the newest first, so that there is no gap; the
        first one from `past_at` on."""
        self.past_at = 0
        self.is_whole = self.is_known = False
        self.mark = 0
        """Up to which it has synced all, as it said."""
        self.formats: frozenset[int] = frozenset()
        """Of the log, that it can read; none until it has said so."""
        self.sent = self.taken = 0
        """Frames."""
        self.sizes: deque[tuple[int, int]] = deque()
        """Of those that are on their way: bytes of the log, and of whatever is behind them."""
        self.calm, self.pace = 0, CatchUpPace()
        """calm: pieces that it got since somebody wrote."""
        self.lag_bytes = self.sent_bytes = 0
        """On their way: of the log, and all."""
        self.applied: Place | None = None
        """What lies before it is applied there; None from one that does not say so."""
        self.applied_lsn: int | None = None
        """The last sequence number of that."""
        self.applied_at_s = float("-inf")
        """When it said so last."""
        self.sync_times, self.clock = SyncTimes(), MachineClock()
        self.sent_files: deque[int] = deque()
        """Of files that are on their way the last frame."""
        self.held: deque[tuple[Said, bytes]] = deque()
        """What waits for the blocks of a file before it, that file first: it may name the file, and
        is not to be there without it (H11)."""
        self.held_bytes = self.held_files = 0
        self.held_at = 0
        """Up to where the first file has gone."""

    @property
    def knows_all(self) -> bool:
        """Whether it takes frames that the release before does not have, and would hang up for."""
        return not self.is_before

    def can_read(self, log_format: int) -> bool:
        """Whether it could lead with a log of that format."""
        return log_format in (self.formats or SILENT_FORMATS)

    def wrote(self, mark: int, at_s: float, size: int) -> None:
        """Somebody did, up to the mark; a copy that has the whole log gets it now."""
        self.calm = 0
        self.pace.wrote(at_s, 0 if self.is_whole else size)
        if self.is_whole:
            self.sync_times.sent(mark, at_s)

    def hold(self, said: Said, data: bytes) -> None:
        """It goes behind what is held already."""
        self.held.append((said, data))
        self.held_bytes += len(data)
        self.held_files += isinstance(said, FilePart)

    def release(self) -> tuple[Said, bytes]:
        """The first one that is held."""
        said, data = self.held.popleft()
        self.held_bytes -= len(data)
        self.held_files -= isinstance(said, FilePart)
        return said, data

    def took(self, frames: int) -> None:
        """It has so many by now; more than were sent is no news."""
        while self.sizes and self.taken < frames:
            lag_bytes, sent_bytes = self.sizes.popleft()
            self.lag_bytes -= lag_bytes
            self.sent_bytes -= sent_bytes
            self.taken += 1
        while self.sent_files and self.sent_files[0] <= self.taken:
            self.sent_files.popleft()


class Primary:
    """Leads one epoch of one node. Implements hms.server.replicas.replica_disk.Copies."""

    def __init__(
        self,
        group: Group,
        folder: Path,
        disk: Disk,
        arbiter: Arbiter,
        leadership: Leadership,
        granted: Configuration,
        socket: PrimaryLink,
        *,
        silent_since_s: float,
        clock_s: Callable[[], float] = now_s,
        clock_ms: Callable[[], int] | None = None,
        came: Mapping[str, tuple[bytes, Envelope]] = MappingProxyType({}),
        took: TakeOver | None = None,
        machine_ms: Callable[[], int | None] = lambda: None,
    ) -> None:
        """clock_ms: the node's clock, which the other copies are told; came: who has joined the
        candidate, as early; took: how this copy came to lead; machine_ms: the machine's own
        clock."""
        self._group, self._folder, self._disk, self._arbiter = group, folder, disk, arbiter
        self._granted = granted
        self._leadership = leadership
        me = Member(group.me, leadership.copy_id, leadership.start)
        limits = group.limits
        self._confirmation = Confirmation(
            granted, me, limits, silent_since_s, clock_s(), group.asynchronous
        )
        self.on_fenced: Callable[[BaseException], None] = lambda _fault: None
        self.on_stopped: Callable[[], None] = lambda: None
        self.on_blocked: Callable[[str], None] = lambda _what: None
        """Told what a confirmation waits for, when copies do not come."""
        self._on_configured: Callable[[str, bool], None] = lambda _copies, _is_planned: None
        self._blocked_since_s: float | None = None
        self._arbiter_fault = ""
        """Why it did not answer last."""
        self.epoch, self._began_s, self._took = granted.epoch, clock_s(), took
        lock = threading.Lock()
        self._changed = threading.Condition(lock)
        """Who keeps the lease and the members waits here."""
        self._advanced = threading.Condition(lock)
        """Who wants a mark confirmed waits here."""
        self._outbox: deque[tuple[Said, bytes]] = deque()
        self._links: dict[bytes, _Link] = {}
        self._early = dict(came)
        """Routes of copies that came before the log is open, and what they said, by name."""
        self._headers: dict[int, tuple[bytes, int]] = {}
        self._ends: dict[int, int] = {}
        """Of segments that were written in this start."""
        self._first = self._current = self._format = 0
        """The segments that were begun in this start and that is written, and the format of the
        log."""
        self._must_keep = False
        self._awaited = ""
        """The replica that a move waits for: it is asked how far it is."""
        self._places: deque[tuple[int, Place]] = deque()
        """Where the marks lie that were synced here and are not confirmed yet."""
        self._readable = ConfirmedPlace(disk, folder)
        self._marks = ArchiveMarks(disk, folder)
        self._place, self._place_at_s, self.refused = NOTHING, float("-inf"), 0
        self._passed, self._passed_end = 0, (0, 0)
        """The mark up to which what was written is on its way; the segment that was written then,
        and where it ended."""
        self._passed_at_s = float("-inf")
        self._fault: HmsError | None = None
        self._is_over, self._turn = False, SocketTurn()
        self.orders = Orders(group.node, group.me, granted.epoch, socket.wake)
        self._socket, self._clock_s = socket, clock_s
        self._clock_ms, self._machine_ms = clock_ms, machine_ms
        self._renew_at_s = self._renewed_s = self._beat_at_s = float("-inf")
        self._threads = [
            threading.Thread(target=self._guarded, args=(run,), name=name, daemon=True)
            for name, run in (("hms-replicas", self._serve), ("hms-lease", self._keep))
        ]
        self.start: Callable[[], None] = self._start
        """Called with the first segment; a simulator has no threads."""

    # what the disk tells (Copies)

    def begun(self, number: int, header: bytes, size: int) -> None:
        """See Copies; the first one is the sign to begin."""
        is_first = not self._current
        with self._changed:
            if is_first:
                self._first = number
                self._confirmation.begins(self._clock_s())
                self._renew_at_s = float("-inf")
            self._headers[number] = header, size
            if (about := unpack_segment_header(header)) is not None:
                self._format = about.version
            self._ends[number] = SEGMENT_HEADER_BYTES
            self._current = number
            mark = self._next_mark()
            self._outbox.append((Segment(mark, number, size, LOG_SUFFIX), header))
        if is_first:
            self.start()
        self._socket.wake()

    def hold(self) -> None:
        """Lead while the log is read: the lease is kept, and copies that come wait. Else another
        one would take over in a long recovery, and read as long."""
        self._start()

    def _start(self) -> None:
        for thread in self._threads:
            if thread.ident is None:
                thread.start()

    def written(self, number: int, offset: int, data: bytes) -> None:
        """See Copies. Before the first segment of this start nobody is connected."""
        with self._changed:
            self._ends[number] = max(self._ends.get(number, 0), offset + len(data))
            if not self._current:
                return
            self._confirmation.written_bytes += len(data)
            for at in range(0, len(data), BYTES_MAX):
                part = data[at : at + BYTES_MAX]
                said = Write(self._next_mark(), number, offset + at, crc32(part))
                self._outbox.append((said, part))
        if not self._send_here():
            self._socket.wake()

    def synced(self) -> None:
        """See Copies."""
        with self._changed:
            mark = self._synced_here()
        if not self._confirmation.is_confirmed(mark):
            self._hear_here(mark)
        with self._changed:
            since_s = self._clock_s()
            while not self._is_confirmed(mark):
                self._advanced.wait(BLOCKED_AFTER_S)
                if self._clock_s() - since_s > self._group.limits.timeout_s + BLOCKED_AFTER_S:
                    self._warn_blocked(since_s)
            self._blocked_since_s = None
            if self._took is not None and not self._took.is_over:
                self._took.confirmed(self._clock_s(), self._clock_ms and self._clock_ms())

    def _send_here(self) -> bool:
        """Send a lone batch in the thread that wrote it; whether it is on its way. A file, or a
        segment that begins, is the link's thread's."""
        if len(self._outbox) != 1 or self._must_keep or not self._take_turn():
            return False
        self._guarded(lambda: self._in_turn(self._send_outbox))
        return True

    def _hear_here(self, mark: int) -> None:
        """Take the copies' answers in the thread that waits for them. What is for the link's thread
        ends that, and so does a copy that takes its time."""
        if not self._take_turn():
            return
        self._guarded(lambda: self._in_turn(lambda: self._hear(mark)))
        if not self._confirmation.is_confirmed(mark):
            self._socket.wake()

    def _hear(self, mark: int) -> None:
        until_s = self._clock_s() + LENT_S
        while not self._confirmation.is_confirmed(mark) and not self._is_over:
            left_s = until_s - self._clock_s()
            if left_s <= 0 or not self._socket.hear(left_s):
                return
            for parts in self._socket.received():
                self._receive(parts[0], parts[1:])

    def _in_turn(self, run: Callable[[], None]) -> None:
        """A fault may stop this primary in this thread, so the turn is given back before that."""
        try:
            run()
        finally:
            self._turn.give_back()

    def _take_turn(self) -> bool:
        """Whether the socket is this thread's now."""
        if not self._turn.take():
            return False
        if self._is_over or self._fault is not None:
            self._turn.give_back()
            return False
        return True

    def _warn_blocked(self, since_s: float) -> None:
        """Once, until something is confirmed again."""
        if self._blocked_since_s is None:
            self._blocked_since_s = since_s
            have, needed, names = self._confirmation.lacking(self._clock_s())
            what = f"{needed} copies, of which {have} are here: {names}"
            log.warning("nothing is confirmed: %s waits for %s", self._group.node, what)
            self.on_blocked(what)

    def _synced_here(self) -> int:
        """The mark up to which all is synced here."""
        mark = self._confirmation.written
        self._places.append((mark, Place(self._current, self._ends.get(self._current, 0))))
        self._confirmation.synced(mark)
        self._find_place()
        if self._confirmation.asked or self._confirmation.is_blocked(self._clock_s()):
            self._changed.notify_all()  # else the keeper has nothing to do, and holds others up
        return mark

    def _is_confirmed(self, mark: int) -> bool:
        """Enough copies have it; raises when this copy leads no more."""
        self._check()
        return self._confirmation.is_confirmed(mark)

    def _find_place(self) -> None:
        """Up to where all is confirmed, and on its way to each copy."""
        limit = min(self._confirmation.confirmed, self._passed)
        while self._places and self._places[0][0] <= limit:
            self._place = self._places.popleft()[1]

    def kept(self) -> None:
        """See Copies."""
        self._must_keep = True

    def file_there(self, name: str) -> None:
        """See Copies."""
        with self._changed:
            said = FilePart(self._next_mark(), name, 0, is_last=False, crc=0)
            self._outbox.append((said, b""))
        self._socket.wake()

    def file_gone(self, name: str) -> None:
        """See Copies."""
        with self._changed:
            self._outbox.append((FileGone(self._next_mark(), name), b""))

    def _next_mark(self) -> int:
        self._confirmation.written += 1
        return self._confirmation.written

    def _check(self) -> None:
        if self._fault is not None:
            raise self._fault
        if self._is_over:
            raise LeadershipLost(
                replica=self._group.me, node=self._group.node, detail="it is stopping"
            )

    # for the node

    def describe(self) -> dict[str, Any]:
        """For the status."""
        with self._changed:
            now, at_s = self._confirmation.now, self._clock_s()
            return {
                "replica": self._group.me,
                "epoch": self.epoch,
                "cause": self._cause,
                "leads_for_s": round(at_s - self._began_s, 1),
                "lease_left_s": round(self._leadership.proof_left_s(at_s), 1),
                "proof": self._proof(at_s),
                "members": [one.name for one in now.members],
                "copies": now.copies,
                "version": now.version,
                "copies_min": self._group.limits.copies_min,
                "promises": promises_needed(now),
                "removed": list(now.removed),
                "failures_survived": self._confirmation.failures_survived(self._clock_s()),
                "is_protected": self._confirmation.failures_survived(self._clock_s()) > 0,
                "blocked_since_s": self._blocked_for_s(),
                "last_take_over": self._took and self._took.describe(self._group.me),
                "replicas": self._rows(),
                "arbiter": "does not answer" if self._arbiter_fault else "answers",
                "frames_refused": self.refused,
            }

    def _proof(self, at_s: float) -> str:
        """Who says last that this copy leads: the arbiter, by a renewal of the lease, or enough
        members, by their answers; "" when neither has for lease_s."""
        if not self._leadership.proof_left_s(at_s):
            return ""
        return "arbiter" if self._renewed_s >= self._confirmation.proof_s(at_s) else "members"

    def _rows(self) -> list[dict[str, object]]:
        """Each copy that came since this one leads, and the asynchronous ones; of its link only
        while it is connected."""
        rows = self._confirmation.describe(self._clock_s())
        links = {one.member.copy_id: one for one in list(self._links.values())}
        return [{**row, **self._row(str(row["copy"]), links.get(str(row["copy"])))} for row in rows]

    def _row(self, copy_id: str, link: _Link | None) -> dict[str, object]:
        if link is None:
            lag = self._confirmation.lag_bytes(copy_id)
        else:
            lag = link.lag_bytes + link.held_bytes + self._left_to_get(link)
        return {
            "lag_bytes": lag,
            "files_behind": 0 if link is None else _files_behind(link),
            "sync_ms": None if link is None else link.sync_times.describe(),
            "applied_lsn": None if link is None else link.applied_lsn,
            "to_apply_bytes": None if link is None else self._left_to_apply(link),
            "formats": [] if link is None else sorted(link.formats),
            "clock_ahead_s": None if link is None else link.clock.ahead_s,
        }

    def _left_to_get(self, link: _Link) -> int:
        """At most how much of the log a copy gets before what is written now."""
        left, at = 0, link.at  # of the first one
        for number in list(link.todo):
            size = self._ends.get(number, self._headers.get(number, (b"", 0))[1])
            left += max(0, size - (link.ends.get(number, 0) if at is None else at))
            at = None
        return left

    def clocks(self) -> list[dict[str, Any]]:
        """By how much the clocks of the other machines are ahead of this one's, where known."""
        with self._changed:
            links = self._heard_links(self._clock_s())
            return [{"node": o.member.name, "clock_ahead_s": o.clock.ahead_s} for o in links]

    def troubles(self) -> dict[str, str]:
        """What an operator is to be told, by the name of the alert; "" where it is as it should."""
        with self._changed:
            at_s = self._clock_s()
            now, rows = self._confirmation.now, self._confirmation.describe(at_s)
            have, needed, names = self._confirmation.lacking(at_s)
            is_blocked = self._blocked_since_s is not None
            survives = self._confirmation.failures_survived(at_s)
            heard = self._heard_links(at_s)  # one whose disk was emptied comes as another copy
            older = sorted(o.member.name for o in heard if not o.can_read(self._format))
        never = self._confirmation.asynchronous
        counting = len({*self._group.peers} - never | {self._group.me})
        count = f"{have} of {counting} copies have everything: {names}"
        behind = [o for o in rows if o["state"] == "CATCHING_UP" and o["mode"] == "SYNC"]
        newest = {o["replica"]: o for o in sorted(rows, key=lambda o: bool(o["is_heard"]))}
        far = [o for o in newest.values() if o["mode"] == "ASYNC" and _is_far(o)]
        epoch = f"{self._group.me} leads in epoch {now.epoch}"
        is_safe = survives or counting == 1  # with one that counts it is as an operator wants it
        return {
            "replica_unprotected": "" if is_safe else f"{epoch}, and no copy may be lost: {count}",
            "replica_behind": self._why_behind(behind, far, older),
            "replica_blocked": f"nothing is confirmed: {needed} copies are needed; {count}"
            if is_blocked
            else "",
            "arbiter_down": self._arbiter_fault,
        }

    def _heard_links(self, at_s: float) -> list[_Link]:
        links = self._links.values()
        return [o for o in links if self._confirmation.is_heard(o.member.copy_id, at_s)]

    def _why_behind(
        self, behind: list[dict[str, object]], far: list[dict[str, object]], older: list[str]
    ) -> str:
        lacking = [str(one["replica"]) for one in behind if one["replica"] not in older]
        told = [f"{', '.join(lacking)} lacks a part of the log"] if lacking else []
        told += [
            f"{one['replica']}, which is ASYNC, is {one['state']} and {one['lag_s']} s behind"
            for one in far
        ]
        if older:
            what = f"cannot read format {self._format} of the log, and does not count"
            told.append(f"{', '.join(older)} {what}: boot the release that it had there")
        return "; ".join(told)

    def _blocked_for_s(self) -> float | None:
        """For how long a confirmation has waited for copies that do not come."""
        since_s = self._blocked_since_s
        return None if since_s is None else round(self._clock_s() - since_s, 1)

    def remove(self, name: str) -> None:
        """Have a replica count no more; the arbiter has it soon. ReplicaChangeRefused."""
        with self._changed:
            detail = "" if name in self._group.peers else self._unknown(name)
            detail = detail or self._no_change
            if not detail:
                detail = self._confirmation.remove(name, self._clock_s())
            self._changed.notify_all()
        if detail:
            node = self._group.node
            raise ReplicaChangeRefused(node=node, replica=name, change="removed", detail=detail)

    def add(self, name: str, peers: Mapping[str, Peer]) -> None:
        """Have a replica count, when it has the whole log. peers: as hms.conf has them now.
        ReplicaChangeRefused."""
        detail = self._no_change
        if name not in peers or name == self._group.me:
            detail = self._unknown(name) if name not in peers else "it leads"
        if detail:
            node = self._group.node
            raise ReplicaChangeRefused(node=node, replica=name, change="added", detail=detail)
        with self._changed:
            self._group = structs.replace(self._group, peers=peers)
            self._socket.let_in(peers.values())
            self._confirmation.add(name, is_async=peers[name].is_async)
            self._changed.notify_all()

    @property
    def _no_change(self) -> str:
        """Why the arbiter could be told of none: it would be made when that is back, which may be
        after hours; "" when it answers."""
        fault = self._arbiter_fault
        return f"the arbiter could not be told of it: {fault}" if fault else ""

    def _unknown(self, name: str) -> str:
        return f"hms.conf of {self._group.me} has no [replica.{name}] of this node"

    def check_format(self, wanted: int) -> None:
        """StoreNotFinalized while a copy is not known to read that format of the log."""
        with self._changed:
            links = self._heard_links(self._clock_s())
            here = {one.member.name: one.formats for one in links}
            removed = self._confirmation.now.removed
        others = [one for one in self._group.peers if one not in (self._group.me, *removed)]
        away = [name for name in others if name not in here]
        older = [name for name in others if name in here and wanted not in here[name]]
        lacks = [f"{', '.join(older)} cannot read format {wanted}"] if older else []
        lacks += [f"{', '.join(away)} cannot be asked"] if away else []
        if lacks:
            raise StoreNotFinalized(node=self._group.node, detail=" and ".join(lacks))

    def may_lead(self, to: str) -> str:
        """The replica that could lead at once with everything: that one, or for "" the one that is
        least behind, and of several the one that was heard last; its name. SwitchoverRefused."""
        others = [name for name in self._group.peers if name != self._group.me]
        if to and to not in others:
            detail = "it leads already" if to == self._group.me else self._unknown(to)
            raise self._refused(to, f"{detail}; the other replicas are {', '.join(others)}")
        if self._arbiter_fault:
            detail = f"nobody could be granted the next epoch: {self._arbiter_fault}"
            raise self._refused(to or "another replica", detail)
        with self._changed:
            fits = [one for one in others if one not in self._confirmation.asynchronous]
            wanted = [to] if to else fits or others
            at_s = self._clock_s()
            lacks = {name: self._confirmation.lacks(name, at_s) for name in wanted}
            lags = {
                one.member.name: (one.lag_bytes + one.held_bytes, self._left_to_apply(one) or 0)
                for one in self._links.values()
            }
            heard = {name: self._confirmation.last_heard_s(name) for name in wanted}
        if fit := [name for name in wanted if not lacks[name]]:
            return min(fit, key=lambda name: (lags.get(name, (0, 0)), -heard[name]))
        if to:
            raise self._refused(to, lacks[to])
        each = "; ".join(f"{name}: {why}" for name, why in lacks.items())
        raise self._refused("another replica", f"none has everything. {each}")

    def _refused(self, to: str, detail: str) -> SwitchoverRefused:
        return SwitchoverRefused(node=self._group.node, to=to, detail=detail)

    def to_apply(self, name: str) -> int | None:
        """At most how many bytes of the log a replica has not applied yet, which it would do before
        it serves; None where it does not say so. It is asked again, and hurries."""
        with self._changed:
            links = [one for one in self._links.values() if one.member.name == name]
            left = self._left_to_apply(links[-1]) if links else None
            self._awaited = name
        self._socket.wake()
        return left

    def has_told(self, name: str, within_s: float) -> bool:
        """Whether what to_apply() says was said within so many seconds: else it may be of a process
        that has ended. One that does not say so at all is not waited for: who does, says it before
        its first answer. The arbiter, too, is to have answered since: one that is away could grant
        nobody the next epoch, and is asked only now and then."""
        with self._changed:
            if self._clock_s() - self._renewed_s > within_s:
                self._renew_at_s = float("-inf")
                self._changed.notify_all()
                return False
            links = [one for one in self._links.values() if one.member.name == name]
            if links and links[-1].applied is None:
                return links[-1].taken > 0
            return bool(links) and self._clock_s() - links[-1].applied_at_s <= within_s

    def _left_to_apply(self, link: _Link) -> int | None:
        """Up to where it was told that all is confirmed: it applies no more than that. A segment of
        a term before counts with its file's size."""
        if link.applied is None:
            return None
        told = self._readable.place
        if told == NOTHING:
            told = Place(self._current, self._ends.get(self._current, SEGMENT_HEADER_BYTES))
        at, left = max(link.applied, Place(self._oldest(), 0)), 0
        for number in range(at.segment, told.segment + 1):
            size = self._ends.get(number, self._headers.get(number, (b"", 0))[1])
            end = told.offset if number == told.segment else size
            left += max(0, end - (at.offset if number == at.segment else 0))
        return left

    def _oldest(self) -> int:
        """The first segment that the log needs."""
        return min(segment_numbers(self._disk, self._folder, LOG_SUFFIX), default=0)

    def readiness(self, name: str) -> tuple[int, str]:
        """The start of a replica's process, 0 when it is not connected, and why it could not lead
        at once; "" when it could."""
        with self._changed:
            links = list(self._links.values())
            starts = [one.member.start for one in links if one.member.name == name]
            return max(starts, default=0), self._confirmation.lacks(name, self._clock_s())

    def follow_configurations(self, told: Callable[[str, bool], None]) -> None:
        """Have each configuration told that holds from now on, this one first, and whether the one
        that led before had handed over."""
        self._on_configured = told
        told(self._told(self._confirmation.now, self._cause), bool(self._leadership.handed_by))

    @property
    def _cause(self) -> str:
        """Why this copy leads."""
        before = self._leadership.handed_by
        return f"handed over by {before}" if before else "campaign"

    def _told(self, now: Configuration, cause: str) -> str:
        names = ", ".join(one.name for one in now.members)
        leads = f"epoch {now.epoch}, {now.primary} leads; version {now.version}"
        return f"{leads}: {names} count, {now.copies} confirm; {cause}"

    def sent_away_in(self, name: str) -> int:
        """The start of a replica's process that handed the lead over to this one, as an operator
        wanted; 0 when it was another way."""
        if self._leadership.handed_by != name:
            return 0
        return max([one.start for one in self._granted.members if one.name == name], default=0)

    def hand_over(self, to: str) -> str:
        """From here on stop() has that replica lead; see may_lead(). Refused, too, while the
        arbiter does not answer: it could be told of no successor, and nobody would lead. Until
        stop() it counts, as one that does not may not lead."""
        name = self.may_lead(to)
        with self._changed:
            detail = "the arbiter does not answer" if self._arbiter_fault else ""
            detail = detail or self._confirmation.hand_over(name, self._clock_s())
        if detail:
            raise self._refused(name, detail)
        return name

    def stop(self) -> None:
        """Say good-bye, and give the lease back, to the replica that takes over."""
        with self._changed:
            self._is_over = True
            self._wake_all()
        self._socket.wake()
        for thread in self._threads:
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join(JOIN_S)
        self._resign()
        with self._turn.own():  # nobody takes it from here on
            self._to_all(Bye())  # once more: who looks at the arbiter finds by now who is to lead
            self._arbiter.close()
            self._socket.close()
        self.on_stopped()

    def _resign(self) -> None:
        successor = self._confirmation.successor
        for _ in range(RESIGNS if successor else 1):
            try:
                self._arbiter.resign(successor)
            except ArbiterUnavailable as fault:
                log.warning("the lease is not given back: %s", fault)
            except HmsError as fault:
                log.warning("the lease ends by itself: %s", fault)
                return
            else:
                return

    def _fail(self, fault: HmsError) -> None:
        """Confirm nothing more, and tell the node once."""
        with self._changed:
            if self._fault is not None or self._is_over:
                return
            self._fault = fault
            self._leadership.depose()
            self._wake_all()
        self.on_fenced(fault)

    def _wake_all(self) -> None:
        self._changed.notify_all()
        self._advanced.notify_all()

    def _guarded(self, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as fault:
            log.exception("the link of the copies ends")
            self._fail(NodeFailed(detail=f"{type(fault).__name__}: {fault}"))

    # the keeper: the lease, and which copies count

    def _keep(self) -> None:
        while self._keep_once():
            with self._changed:
                if self._is_over or self._fault is not None:
                    return
                is_free = self._current and not self._confirmation.asked
                if not is_free or self._confirmation.wanted(self._clock_s()) is None:
                    self._changed.wait(self._group.lease_s / LOOKS_PER_LEASE)

    def _keep_once(self) -> bool:
        """Ask what is to be asked; whether this copy still leads."""
        with self._changed:
            if self._is_over or self._fault is not None:
                return False
            at_s = self._clock_s()
            silent_s = max(self._group.lease_s, self._group.limits.timeout_s)
            if gone := self._confirmation.give_up_silent(at_s, silent_s):
                log.warning("%s, which was to lead, is gone: any copy may lead", gone)
            wanted = self._confirmation.wanted(at_s) if self._current else None
            if wanted is not None:
                self._confirmation.asking(wanted)
                if not self._confirmation.may_ask(wanted):
                    wanted = None
            self._advanced.notify_all()  # a change that was taken back may have been the reason
        if wanted is not None:
            self._ask(wanted)
        if self._clock_s() >= self._renew_at_s:
            self._renew_at_s = self._clock_s() + self._group.lease_s / RENEWALS_PER_LEASE
            self._renew()
        return not self._is_deposed()

    def _ask(self, new: Configuration) -> None:
        """Until the arbiter has said what it has, both rules hold."""
        try:
            if self._arbiter.change(new.version - 1, new):
                self._settle(new)
            else:
                self._read()
        except ArbiterUnavailable as fault:
            log.warning("members stay as they are: %s", fault)

    def _read(self) -> None:
        standing = self._arbiter.read()
        if standing is None:
            return
        with self._changed:
            self._leadership.saw(standing.configuration.epoch)
        if self._leadership.role is Role.LEADING:
            self._settle(standing.configuration)

    def _settle(self, now: Configuration) -> None:
        with self._changed:
            before, after = self._confirmation.now, now
            self._confirmation.settled(now)
            self._advanced.notify_all()
        if (before.members, before.copies) != (after.members, after.copies):
            is_planned = bool(self._leadership.handed_by)
            self._on_configured(self._told(after, "members changed"), is_planned)
        if before.members != after.members:
            names = ", ".join(one.name for one in after.members)
            log.warning("copies that count: %s; %d confirm", names, after.copies)

    def _renew(self) -> None:
        asked_s = self._clock_s()
        try:
            if self._arbiter.renew():
                with self._changed:
                    self._leadership.proved(asked_s)
                    self._renewed_s = asked_s
            else:
                self._read()
        except ArbiterUnavailable as fault:
            if not self._arbiter_fault:  # once, until it answers again
                log.warning("the lease is not renewed: %s", fault)
            self._arbiter_fault = str(fault)
        else:
            if self._arbiter_fault:
                log.warning("the arbiter answers again")
            self._arbiter_fault = ""

    def _is_deposed(self) -> bool:
        """Judged by what the copies have said by now: an arbiter may have kept this thread waiting
        for longer than a lease."""
        with self._changed:
            self._leadership.proved(self._confirmation.proof_s(self._clock_s()))
        if self._leadership.role is Role.DEPOSED:
            theirs = self._leadership.seen
            self._fail(StoreFenced(path=str(self._folder), theirs=theirs, ours=self.epoch))
        elif self._current and not self._leadership.is_proved(self._clock_s()):
            detail = f"neither the arbiter nor enough copies said so for {self._group.lease_s:g} s"
            self._fail(LeadershipLost(replica=self._group.me, node=self._group.node, detail=detail))
        else:
            return False
        return True

    # the link

    def _serve(self) -> None:
        with self._turn.own():
            self._serve_all()

    def _serve_all(self) -> None:
        while not self._is_over and self._fault is None:
            pause_s = max(0.0, self._beat_at_s - self._clock_s())
            pause_s = min(pause_s, self._until_more_s())
            if self._is_place_new:
                pause_s = min(pause_s, PLACE_S)
            if pause_s and self._may_rest():
                self._turn.lend(self._socket.rest, min(pause_s, REST_S))
                pause_s = 0.0
            self._socket.wait(pause_s)
            self._serve_once()
        self._tell_place()
        self._answer_orders()
        self._to_all(Bye())

    def _may_rest(self) -> bool:
        """Something was written just now, and is confirmed or still synced here, so that nobody
        waits for an answer yet; and no copy lacks anything."""
        now = self._confirmation
        return (
            self._clock_s() < self._passed_at_s + LENT_S
            and (now.is_confirmed(self._passed) or now.own < self._passed)
            and not any(
                link.past or link.held or not link.is_whole for link in self._links.values()
            )
        )

    @property
    def _beat_s(self) -> float:
        timeout_s = self._group.limits.timeout_s
        return min(self._group.lease_s / BEATS_PER_LEASE, timeout_s / BEATS_PER_TIMEOUT)

    def _serve_once(self) -> None:
        if not self._current:
            self._hold_line()
            return
        self._join_early()
        self._send_outbox()  # somebody waits for it
        for parts in self._socket.received():
            self._receive(parts[0], parts[1:])
        self._answer_orders()
        for link in list(self._links.values()):
            self._send_held(link)
            self._catch_up(link)
        at_s = self._clock_s()
        if at_s >= self._place_at_s:
            self._place_at_s = at_s + PLACE_S
            self._tell_place()
        if at_s >= self._beat_at_s:
            self._beat_at_s = at_s + self._beat_s
            self._to_all(Beat(at_s))
            self._tell_time([route for route, link in self._links.items() if link.formats])
            self._ask_applied(self._links.values(), hurries=False)
            if mark := self._marks.news():
                for link in self._links.values():
                    if link.knows_all:
                        self._send(link.route, Mark(mark))
        self._ask_awaited()

    def _ask_awaited(self) -> None:
        name, self._awaited = self._awaited, ""
        awaited = [one for one in self._links.values() if one.member.name == name]
        self._ask_applied(awaited, hurries=True)

    def _ask_applied(self, links: Iterable[_Link], *, hurries: bool) -> None:
        """Those that have said it before: a release before does not read it."""
        for link in list(links):
            if link.applied is not None:
                self._send(link.route, AskApplied(hurries))

    def _tell_time(self, routes: Iterable[bytes]) -> None:
        if self._clock_ms is not None:
            now = Time(self._clock_ms())
            for route in routes:
                self._send(route, now)

    def _hold_line(self) -> None:
        """The log is read: who comes is told that this copy lives, and joins later."""
        for route, *parts in self._socket.received():
            with suppress(ReplicaFrameBad):
                self._came_early(route, decode(parts)[0])
        self._answer_orders()
        at_s = self._clock_s()
        if at_s >= self._beat_at_s:
            self._beat_at_s = at_s + self._beat_s
            self._to_all(Beat(at_s))

    def _join_early(self) -> None:
        """Those who came before: their copies are as they said, as they take nothing else."""
        early, self._early = self._early, {}
        for route, envelope in early.values():
            assert isinstance(envelope.said, Join)
            try:
                self._join(route, envelope, envelope.said)
            except ReplicaFrameBad as fault:
                self._refuse(fault)

    def _came_early(self, route: bytes, envelope: Envelope) -> None:
        name, said = envelope.replica, envelope.said
        is_peer = name in self._group.peers and name != self._group.me
        if envelope.log != self._leadership.log or not is_peer:
            return
        if isinstance(said, Join) and said.promised <= self.epoch:
            self._early[name] = route, envelope
            self._send(route, Beat(self._clock_s()))
        elif isinstance(said, Join):
            with self._changed:
                self._leadership.saw(said.promised)
        elif isinstance(said, Order):
            self._order(route, name, said)
        elif isinstance(said, Bye) and self._early.get(name, (b"",))[0] == route:
            del self._early[name]

    def _tell_place(self) -> None:
        """To who reads this copy, and to the copies that have all before it."""
        with self._changed:
            self._find_place()
            place = self._place
        if place == self._readable.place:
            return
        self._readable.tell(place)
        for link in list(self._links.values()):
            if link.is_whole and link.knows_all and not link.held:
                self._send(link.route, ConfirmedUpTo(*place))

    @property
    def _is_place_new(self) -> bool:
        return bool(self._places) or self._place != self._readable.place

    def _until_more_s(self) -> float:
        """How soon a copy may get the next piece of what it lacks, if nothing comes before."""
        at_s = self._clock_s()
        rests = [one.pace.rest_s(at_s) for one in self._links.values() if self._may_send(one)]
        if not rests:
            return float("inf")
        return max(min(rests), AWAITED_S if self._is_awaited() else 0.0)

    def _has_more(self) -> bool:
        return self._until_more_s() < float("inf")

    def _is_awaited(self) -> bool:
        """Somebody waits for what has gone just now to be confirmed."""
        is_confirmed = self._confirmation.is_confirmed(self._passed)
        return not is_confirmed and self._clock_s() < self._passed_at_s + AWAITED_S

    def _may_send(self, link: _Link) -> bool:
        """Whether what a copy lacks may go on."""
        if not link.pace.may_send(self._clock_s()):
            return False
        if link.sent_bytes + PIECE_BYTES > self._group.window_bytes // CATCH_UP_SHARE:
            return False
        if link.is_whole:
            return bool(link.past) and link.sent - link.taken < SHADOW_FRAMES
        return link.sent - link.taken < min(WINDOW_FRAMES, SHADOW_FRAMES + link.calm)

    def _receive(self, route: bytes, parts: list[bytes]) -> None:
        try:
            envelope, _ = decode(parts)
            if envelope.log != self._leadership.log:
                raise ReplicaFrameBad(detail=f"it is of log {envelope.log[:40]}")  # noqa: TRY301
            if isinstance(envelope.said, Join):
                self._join(route, envelope, envelope.said)
            elif isinstance(envelope.said, Order):
                self._order(route, envelope.replica, envelope.said)
            elif isinstance(envelope.said, Inspect | Digest):
                self._look(route, envelope.replica, envelope.said)
            elif (link := self._links.get(route)) is None:
                self._send(route, Rejoin())
            else:
                self._said(link, envelope.said)
        except ReplicaFrameBad as fault:
            self._refuse(fault)

    def _refuse(self, fault: ReplicaFrameBad) -> None:
        self.refused += 1
        log.warning("a frame of a copy is refused: %s", fault)

    def _said(self, link: _Link, said: Said) -> None:
        copy_id = link.member.copy_id
        if isinstance(said, Mark):
            self._marks.take(said.mark)
            return
        if isinstance(said, Reads) and link.is_before:
            self._begin_anew(link)  # it is of this release, and was not answered in time
            return
        with self._changed:
            at_s = self._clock_s()
            self._confirmation.heard(copy_id, at_s)
            match said:
                case Ack():
                    link.took(said.frames)
                    link.pace.took(link.taken, at_s)
                    link.mark = max(link.mark, said.mark)
                    link.sync_times.synced(said.mark, at_s)
                    self._count(link)
                case Reads():
                    link.formats = frozenset(said.formats)
                    self._tell_time([link.route])  # it may lead before the next beat
                    self._count(link)
                case BeatAck():
                    if said.at_s > self._clock_s():  # it would prove leadership for ever
                        raise ReplicaFrameBad(detail="it answers a beat that was not sent yet")
                    self._confirmation.beat(copy_id, said.at_s)
                    link.pace.answered(at_s - said.at_s)
                case Bye():
                    self._confirmation.left(copy_id)
                    del self._links[link.route]
                    self._changed.notify_all()
                case _:
                    self._told_of_itself(link, said, at_s)

    def _told_of_itself(self, link: _Link, said: Said, at_s: float) -> None:
        """How far a copy is, and its machine's clock; and what no copy says."""
        match said:
            case AppliedUpTo():
                link.applied = Place(said.number, said.offset)
                link.applied_lsn, link.applied_at_s = said.lsn or None, at_s
            case Clock():
                if not said.at_s <= at_s:  # also of what is no number
                    raise ReplicaFrameBad(detail="its clock answers a beat that was not sent yet")
                if (ours_ms := self._machine_ms()) is not None:
                    link.clock.said(said.at_ms, ours_ms, at_s - said.at_s)
            case _:
                raise ReplicaFrameBad(detail=f"a copy does not say {type(said).__name__}")

    def _count(self, link: _Link) -> None:
        """What a copy has counts, if it could lead with it: one of an older release may come back
        to a log whose format was raised meanwhile."""
        if not link.can_read(self._format):
            return
        before = self._confirmation.confirmed
        self._confirmation.acked(link.member.copy_id, link.mark)
        if self._confirmation.confirmed > before:
            self._advanced.notify_all()
        if (link.is_whole and not link.is_known) or self._confirmation.asked:
            link.is_known = True
            self._changed.notify_all()

    def _order(self, route: bytes, name: str, said: Order) -> None:
        self._check_other(name)
        self.orders.take(route, name, said)

    def _check_other(self, name: str) -> None:
        if name not in self._group.peers or name == self._group.me:
            raise ReplicaFrameBad(detail=f"{name[:40]!r} is no other replica of this node")

    def _look(self, route: bytes, name: str, said: Inspect | Digest) -> None:
        """What a command at another machine wants to know of this log."""
        self._check_other(name)
        if isinstance(said, Digest):
            self._send(route, self._digested(said))
            return
        with self._changed:
            rows = [one for one in self._rows() if one["replica"] == name]
            row = max(rows, key=lambda one: bool(one["is_heard"]), default={})  # a lost disk's last
            confirmed = self._place
        self._send(
            route,
            Inspected(
                sorted(all_files(self._disk, self._folder)),
                (confirmed.segment, confirmed.offset),
                str(row.get("state", "AWAY")),
                int(str(row.get("lag_bytes", 0))),
                float(str(row.get("lag_s", 0.0))),
            ),
        )

    def _digested(self, said: Digest) -> Digested:
        """At most BYTES_MAX are read and hashed, so that the link's others hardly wait."""
        file, data = all_files(self._disk, self._folder).get(said.number), None
        if file is not None:
            with suppress(FileNotFoundError), opened(self._disk, file, READ) as fd:
                data = self._disk.pread(fd, said.size, said.offset)
        if data is None:
            return Digested(said.number, said.offset, -1, b"")
        return Digested(said.number, said.offset, len(data), digest_of(data))

    def _answer_orders(self) -> None:
        for route, said, data in self.orders.answers():
            self._send(route, said, data)

    def _join(self, route: bytes, envelope: Envelope, said: Join) -> None:
        """A copy comes, or comes again; what it lacks is begun."""
        if said.promised > self.epoch:
            with self._changed:
                self._leadership.saw(said.promised)
                self._changed.notify_all()
            return
        name, start = envelope.replica, envelope.start
        self._check_other(name)
        known = [o.start for o in self._confirmation.now.members if o.copy_id == said.copy_id]
        if self._confirmation.is_heard(said.copy_id, self._clock_s()):
            links = self._links.values()
            known += [o.member.start for o in links if o.member.copy_id == said.copy_id]
        if start < max(known, default=0) or said.copy_id == self._leadership.copy_id:
            detail = f"{name} started {start} times, {max(known, default=0)} are known"
            raise ReplicaFrameBad(detail=f"{detail}: its copy went back, or is there twice")
        is_before = said.past is None
        link = _Link(route, Member(name, said.copy_id, start), is_before=is_before)
        files = set(said.files)
        self._headers_now()  # who writes does not wait while they are read
        with self._changed:
            for old in [o for o in self._links.values() if o.member.copy_id == said.copy_id]:
                del self._links[old.route]
            wanted = self._headers_now()  # before the history: what is let go in between is in both
            history = segment_numbers(self._disk, self._folder, HISTORY_SUFFIX)
            left = self._headers_left(sorted({*history} & {*said.segments}))
            lost = max(self._confirmation.now.lossy, default=0)
            found = plan(said.segments, said.ends, wanted, left, lost)
            link.todo.extend(found.lacking)
            link.ends = said.ends
            here = self._files_here()
            link.files.extend(sorted(here - files))
            theirs = {*(history if said.past is None else said.past), *said.segments}
            theirs -= {*said.ends}  # the damaged ones
            link.past.extend(sorted(set(history) - theirs, reverse=True))
            is_fit = not (found.drop or found.diverged)
            if is_fit:
                self._links[route] = link
                self._marks.again()
                self._confirmation.joined(link.member, self._clock_s())
        log.info("%s joins, %d segments to get", name, len(found.lacking))
        if not is_fit:
            for number in {*found.drop} & {*said.ends} & {*left}:
                self._cut_first(route, number, said.ends[number])
            self._send(route, Drop(found.drop, []))
            if found.diverged:
                self._send(route, Aside(found.diverged))
            self._send(route, Rejoin())
            return
        self._tell(link, Resume())
        if gone := sorted(files - here):
            self._tell(link, Drop([], gone))

    def _cut_first(self, route: bytes, number: int, theirs: int) -> None:
        """A copy's last segment is in our history, and goes. What it has behind our end nobody
        adopted: it is set aside, and its readers had not seen that, unless it was lost."""
        file = segment_file(self._folder, number, HISTORY_SUFFIX)
        with suppress(FileNotFoundError), opened(self._disk, file, READ) as fd:
            end = last_written(self._disk, fd, SEGMENT_HEADER_BYTES)
            end += -end % 8
            header = unpack_segment_header(self._disk.pread(fd, SEGMENT_HEADER_BYTES, 0))
            if header is not None and self._stands_seal(fd, end - RECORD_HEADER_BYTES, header.salt):
                end -= RECORD_HEADER_BYTES
            if theirs > end:
                self._send(route, Cut(number, end))

    def _headers_now(self) -> dict[int, bytes]:
        """Of all segments that the log needs."""
        found: dict[int, bytes] = {}
        for number, file in all_files(self._disk, self._folder).items():
            if file.suffix == HISTORY_SUFFIX:
                continue
            if number not in self._headers:
                with suppress(FileNotFoundError), opened(self._disk, file, READ) as fd:
                    header = self._disk.pread(fd, SEGMENT_HEADER_BYTES, 0)
                    self._headers[number] = header, self._disk.size(fd)
            if number in self._headers:
                found[number] = self._headers[number][0]
        return found

    def _headers_left(self, numbers: Iterable[int]) -> dict[int, bytes]:
        """Of segments that only the history keeps."""
        found: dict[int, bytes] = {}
        for number in numbers:
            file = segment_file(self._folder, number, HISTORY_SUFFIX)
            with suppress(FileNotFoundError), opened(self._disk, file, READ) as fd:
                found[number] = self._disk.pread(fd, SEGMENT_HEADER_BYTES, 0)
        return found

    def _files_here(self) -> set[str]:
        with suppress(FileNotFoundError):
            names = self._disk.list_dir(self._folder / FILES_FOLDER)
            return {name for name in names if is_whole_file(name)}
        return set()

    # what is written now

    def _send_outbox(self) -> None:
        with self._changed:
            waiting, self._outbox = self._outbox, deque()
            self._passed = self._confirmation.written
            self._passed_end = self._current, self._ends[self._current]
            must_keep, self._must_keep = self._must_keep, False
        if waiting:
            self._passed_at_s = self._clock_s()
            size = sum(len(data) + self._file_bytes(said) for said, data in waiting)
            for link in self._links.values():
                link.wrote(self._passed, self._passed_at_s, size)
        for said, data in waiting:
            packed = self._packed(said)
            for link in list(self._links.values()):
                self._pass_on(link, said, data, packed)
        if must_keep:
            keep = self._keeps()
            for link in self._links.values():
                if link.is_whole:
                    self._tell_in_order(link, keep)

    def _file_bytes(self, said: Said) -> int:
        """Of a file that is there now."""
        if isinstance(said, FilePart):
            with suppress(FileNotFoundError):
                file = self._folder / FILES_FOLDER / said.name
                return self._disk.size_and_age(file)[0]
        return 0

    def _pass_on(self, link: _Link, said: Said, data: bytes, packed: bytes) -> None:
        """To a copy that is whole; one that is not gets later what it has not passed yet. One that
        is too far behind gets it from the files. packed: the envelope, which is the same for
        all."""
        is_behind = link.sent - link.taken + len(link.held) > BEHIND_FRAMES_MAX
        lag_bytes = link.lag_bytes + link.held_bytes
        if is_behind or lag_bytes + len(data) > self._group.window_bytes:
            self._begin_anew(link)
        elif link.is_whole:
            self._tell_in_order(link, said, data, packed)
        elif isinstance(said, FilePart):
            link.files.append(said.name)
        elif isinstance(said, FileGone):
            self._tell(link, structs.replace(said, mark=0))
        elif isinstance(said, Segment):
            if said.number not in link.todo:
                link.todo.append(said.number)
        elif isinstance(said, Write) and said.number not in link.todo:
            if link.at is None and (link.files or link.todo):
                # Behind a file that it may name, and before the segment that a seal tells of.
                link.ends[said.number] = said.offset
                link.todo.appendleft(said.number)
            else:
                self._tell(link, structs.replace(said, mark=0), data)  # it has not all before it

    def _keeps(self) -> Keep:
        numbers = [
            segment_numbers(self._disk, self._folder, suffix)
            for suffix in (LOG_SUFFIX, PINNED_SUFFIX, HISTORY_SUFFIX)
        ]
        return Keep(0, min(numbers[0], default=0), numbers[1], numbers[2])

    # what a copy lacks

    def _catch_up(self, link: _Link) -> None:
        """A piece: before the next one of any copy goes what was written meanwhile, and comes its
        confirmation."""
        if self._is_awaited() or not self._may_send(link) or link.route not in self._links:
            return
        at_s, sent_bytes = self._clock_s(), link.sent_bytes
        if link.pace.rest_s(at_s):
            return
        link.calm += 1
        if link.files:
            self._some_of_file(link, link.files[0])
        elif link.todo:
            self._some_of(link, link.todo[0])
        elif link.is_whole:
            self._some_past(link, link.past[0])
        else:
            self._make_whole(link)
        if link.sent_bytes > sent_bytes:
            link.pace.sent(link.sent, link.sent_bytes - sent_bytes, at_s)

    def _some_of(self, link: _Link, number: int) -> None:
        """The next bytes of a segment; one that was let go meanwhile has the copy join again."""
        header, found = self._headers.get(number), self._open_segment(number)
        if found is None or header is None:
            self._begin_anew(link)
            return
        fd, suffix = found
        try:
            if link.at is None:
                if not self._finds_end(link, fd, number):
                    return
                theirs = link.ends.get(number, 0)
                link.at = resumes_at(theirs, link.end)
                self._tell(link, Segment(0, number, header[1], suffix), header[0])
                if number != self._current:  # first: what follows may come, and a crash
                    self._tell(link, Cut(number, self._cut_at(fd, number, theirs, link.end)))
            link.end = max(link.end, self._end_passed(number))
            size = min(PIECE_BYTES, self._sends_up_to(link, number, fd) - link.at)
            data = self._disk.pread(fd, size, link.at)
        finally:
            self._disk.close(fd)
        if data:
            self._tell(link, Write(0, number, link.at, crc32(data)), data)
            link.at += len(data)
        if link.at >= link.end:
            link.todo.popleft()
            link.at = None

    def _end_passed(self, number: int) -> int:
        """Where a segment of this start ends in what was passed on: what is written just now may
        name a file that has not gone (H11)."""
        current, end = self._passed_end
        if number < current:
            end = self._ends.get(number, 0)
        return max(SEGMENT_HEADER_BYTES, end if number <= current else 0)

    def _open_segment(self, number: int) -> tuple[int, str] | None:
        """A segment of the log, and the end of its name; in the order in which it gets names."""
        for suffix in (LOG_SUFFIX, PINNED_SUFFIX):
            with suppress(FileNotFoundError):
                file = segment_file(self._folder, number, suffix)
                return self._disk.open(file, READ), suffix
        return None

    def _finds_end(self, link: _Link, fd: int, number: int) -> bool:
        """Where the bytes of a segment end. Who began it in this start knows; else it is looked
        for from its end on, a piece in a turn, as almost nothing may have been written there."""
        if number < self._first:
            unseen = self._disk.size(fd) if link.unseen is None else link.unseen
            link.unseen = max(SEGMENT_HEADER_BYTES, unseen - PIECE_BYTES)
            found = last_written(self._disk, fd, link.unseen, unseen)
            if found == link.unseen > SEGMENT_HEADER_BYTES:
                return False
            link.end, link.unseen = found + -found % 8, None
        link.end = max(link.end if number < self._first else 0, self._end_passed(number))
        return True

    def _cut_at(self, fd: int, number: int, theirs: int, end: int) -> int:
        """Where the copy's own bytes have to go: also what it has at the place of our seal, which
        comes later; a crash in between would leave that in the middle of its log."""
        seal_at = end - RECORD_HEADER_BYTES
        return seal_at if theirs > end and self._is_seal(fd, number, seal_at) else end

    def _some_past(self, link: _Link, number: int) -> None:
        """The next bytes of a segment of the history; the older ones go with one that is gone."""
        file = segment_file(self._folder, number, HISTORY_SUFFIX)
        try:
            with opened(self._disk, file, READ) as fd:
                size = self._disk.size(fd)
                data = self._disk.pread(fd, PIECE_BYTES, link.past_at)
        except FileNotFoundError:
            link.past.clear()
            return
        is_last = link.past_at + len(data) >= size
        said = PastPart(number, link.past_at, is_last=is_last, crc=crc32(data))
        self._tell(link, said, data)
        link.past_at += len(data)
        if is_last:
            link.past.popleft()
            link.past_at = 0

    def _sends_up_to(self, link: _Link, number: int, fd: int) -> int:
        """The end, or where the seal stands: that goes when the next segment has begun, as in the
        log. A seal says that there is one, and a copy may have to take over at any moment."""
        assert link.at is not None
        seal_at = link.end - RECORD_HEADER_BYTES
        if number == self._current or link.at > seal_at or not self._is_seal(fd, number, seal_at):
            return link.end
        if link.at < seal_at:
            return seal_at
        following = all_files(self._disk, self._folder).get(number + 1)
        if number + 1 in link.todo and following is not None and number + 1 in self._headers:
            if following.suffix == HISTORY_SUFFIX:  # it was let go meanwhile
                self._begin_anew(link)
                return link.at
            header, size = self._headers[number + 1]
            self._tell(link, Segment(0, number + 1, size, following.suffix), header)
        return link.end

    def _is_seal(self, fd: int, number: int, at: int) -> bool:
        """A crash may have left the segment without one: then its last record stands there."""
        header = unpack_segment_header(self._headers[number][0])
        assert header is not None
        return self._stands_seal(fd, at, header.salt)

    def _stands_seal(self, fd: int, at: int, salt: int) -> bool:
        data = memoryview(self._disk.pread(fd, RECORD_HEADER_BYTES, at))
        found = unpack_record_header(data, 0, salt)
        return found is not None and found.kind == KIND_SEAL

    def _begin_anew(self, link: _Link) -> None:
        """Have it join again."""
        with self._changed:
            self._confirmation.behind(link.member.copy_id)
            self._links.pop(link.route, None)
        self._send(link.route, Rejoin())

    def _make_whole(self, link: _Link) -> None:
        """It has the bytes of every segment, up to what was passed on last: what has been written
        since then goes to it as it comes."""
        mark = self._passed
        with self._changed:
            if link.todo or link.files:
                return
            link.is_whole = True
            self._confirmation.whole(link.member.copy_id, mark)
        self._tell(link, self._keeps())
        self._tell(link, Whole(mark))
        if self._readable.place != NOTHING and link.knows_all:
            self._send(link.route, ConfirmedUpTo(*self._readable.place))
        log.info("%s has the whole log", link.member.name)

    def _some_of_file(self, link: _Link, name: str) -> None:
        """The next bytes of a file; one that is gone is of no message any more."""
        data, is_last = b"", True
        with (
            suppress(FileNotFoundError),
            opened(self._disk, self._folder / FILES_FOLDER / name, READ) as fd,
        ):
            data = self._disk.pread(fd, PIECE_BYTES, link.file_at)
            is_last = link.file_at + len(data) >= self._disk.size(fd)
            said = FilePart(0, name, link.file_at, is_last=is_last, crc=crc32(data))
            self._tell(link, said, data)
        link.file_at += len(data)
        if is_last:
            link.files.popleft()
            link.file_at = 0

    def _tell_in_order(
        self, link: _Link, said: Said, data: bytes = b"", packed: bytes = b""
    ) -> None:
        """What was written now: at once, or behind the file that is on its way."""
        if link.held or isinstance(said, FilePart):
            link.hold(said, data)
        else:
            self._tell(link, said, data, packed)

    def _send_held(self, link: _Link) -> None:
        """As much of files as their window lets on its way, and what waits behind them; the rest
        goes with the next answers of the copy."""
        if not link.held:
            return
        while link.held:
            said, data = link.held[0]
            if not isinstance(said, FilePart):
                self._tell(link, said, data)
            elif not self._send_file(link, said.name, said.mark):
                return
            link.release()
            link.held_at = 0
        if self._readable.place != NOTHING and link.knows_all:
            self._send(link.route, ConfirmedUpTo(*self._readable.place))

    def _send_file(self, link: _Link, name: str, mark: int) -> bool:
        """The next blocks of a file; whether it has gone. One that was removed is of no message any
        more."""
        try:
            with opened(self._disk, self._folder / FILES_FOLDER / name, READ) as fd:
                return self._send_blocks(link, fd, name, mark)
        except FileNotFoundError:
            return True

    def _send_blocks(self, link: _Link, fd: int, name: str, mark: int) -> bool:
        size = self._disk.size(fd)
        window_bytes = min(FILE_WINDOW_BYTES, self._group.window_bytes // CATCH_UP_SHARE)
        while link.sent_bytes - link.lag_bytes + PIECE_BYTES <= window_bytes:
            data = self._disk.pread(fd, PIECE_BYTES, link.held_at)
            is_last = link.held_at + len(data) >= size
            at, mark_now = link.held_at, mark if is_last else 0
            said = FilePart(mark_now, name, at, is_last=is_last, crc=crc32(data))
            self._tell(link, said, data)
            link.held_at += len(data)
            if is_last:
                return True
        return False

    # saying

    def _to_all(self, said: Said) -> None:
        early = (route for route, _ in self._early.values())
        for route in (*self._links, *early):
            self._send(route, said)

    def _tell(self, link: _Link, said: Said, data: bytes = b"", packed: bytes = b"") -> None:
        """Counted: the copy says how many it took."""
        link.sent += 1
        size = len(data) if isinstance(said, Write) else 0  # a file is sent whole, however large
        link.sizes.append((size, len(data)))
        link.lag_bytes += size
        link.sent_bytes += len(data)
        if isinstance(said, FilePart) and said.is_last:
            link.sent_files.append(link.sent)
        self._socket.send(link.route, packed or self._packed(said), data)

    def _send(self, route: bytes, said: Said, data: bytes = b"") -> None:
        self._socket.send(route, self._packed(said), data)

    def _packed(self, said: Said) -> bytes:
        me = self._leadership
        return encode(Envelope(FORMAT, me.log, self.epoch, me.me, me.start, said))


def _files_behind(link: _Link) -> int:
    return len(link.files) + len(link.sent_files) + link.held_files


def _is_far(row: Mapping[str, object]) -> bool:
    """Of an asynchronous copy: what it lacks is more than what is on its way."""
    is_away = row["state"] in ("AWAY", "CATCHING_UP")
    return is_away or (row["state"] == "IN_SYNC" and float(str(row["lag_s"])) >= FAR_S)
