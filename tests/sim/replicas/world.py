"""The world: machines with a process each, driven step by step; the invariants after each."""

import errno
import hashlib
import os
import random
import re
from collections import Counter, deque
from contextlib import suppress
from functools import partial
from itertools import combinations, count

import msgspec

from hms.boot.clock import EvenClock
from hms.errors.catalogue import (
    ArbiterDamaged,
    ArbiterUnavailable,
    ReplicaChangeRefused,
    ReplicaUnknown,
    ReplicaWentBack,
    StoreCorrupt,
    SwitchoverRefused,
)
from hms.errors.tree import HmsError
from hms.server.arbiter import Configuration, Member
from hms.server.arbiter.interface import decode_configuration
from hms.server.arbiter.memory import MemoryArbiter, MemoryEngine
from hms.server.replicas.candidate import Candidate
from hms.server.replicas.confirmation import Limits, copies_needed
from hms.server.replicas.copy_state import CopyState, state_of, write_state
from hms.server.replicas.damage import DAMAGE_NAME
from hms.server.replicas.follower import Follower
from hms.server.replicas.frames import Bye
from hms.server.replicas.leadership import Leadership
from hms.server.replicas.link import Group, Peer
from hms.server.replicas.log_copy import ASIDE_MAX, FILES_FOLDER, NO_LIMITS, aside_names
from hms.server.replicas.primary import Primary
from hms.server.replicas.promises import Lead, promises_needed
from hms.store.journal.confirmed_place import NOTHING, Place, place_in
from hms.store.journal.disk import CREATE, write_all
from hms.store.journal.format import (
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    Author,
    Entry,
    pack_records,
    pack_seal,
    pack_segment_header,
    record_bytes,
    unpack_segment_header,
)
from hms.store.journal.lock import DirectoryLock
from hms.store.journal.recovery import Recovery
from hms.store.journal.segment_walk import Walk, opened, read_info, segment_file
from tests.sim.disk import Crash, SimDisk
from tests.sim.replicas import hostile, loss, mishaps
from tests.sim.replicas.leaving import Leaving, StaysWhole, limits_of
from tests.sim.replicas.lines import Line, Net, Socket
from tests.sim.replicas.loss import Reader
from tests.sim.replicas.what_is_fixed import FOLDER, LEASE_S, LOG, SEGMENT, UID

KIND = 1
HEAL_STEPS = 4000
BEGUN_S, WALL_S, STEP_S = 1.7e9, 3 * 86400.0, 3600.0
TIME_SHARE, TIME_SLACK_S = 0.03, 0.5
"""A clock of a machine runs one percent apart, and the node follows its date by as much."""
STORED, GONE = rb"\+([0-9a-f-]{90})\)", rb" -([0-9a-f-]{90})\)"
"""What a record says of a file."""


class Disk(SimDisk):
    """Of one machine: the folder of a copy, and that of its files."""

    fails = False
    """The next sync does."""

    def _sync(self, fd, call):
        if self.fails:
            self.before = partial(self._refuse, self.before)
        super()._sync(fd, call)

    def _refuse(self, before, _call, _inode):
        self.before, self.fails = before, False
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def key(self, path):
        is_file = path.parent.name == FILES_FOLDER
        return f"{FILES_FOLDER}/{path.name}" if is_file else path.name

    def list_dir(self, path):
        inside = f"{FILES_FOLDER}/"
        if path.name == FILES_FOLDER:
            return sorted(n.removeprefix(inside) for n in self.names if n.startswith(inside))
        return sorted(name for name in self.names if not name.startswith(inside))

    def size_and_age(self, path):
        if self.key(path) not in self.names:
            raise FileNotFoundError(path)
        return super().size_and_age(path)

    def safe(self, name):
        """What a power cut would leave of a file."""
        inode = self.safe_names.get(name)
        return b"" if inode is None else bytes(inode.safe)


class Log:
    """What a primary writes: batches of records, one on its way at a time, as the journal does."""

    def __init__(self, world, name, primary, epoch, clock):
        self.world, self.disk, self.primary = world, world.disks[name], primary
        self.clock_ms = clock
        self.name, self.epoch = name, epoch
        recovery = Recovery(self.disk, FOLDER, UID)
        found = [(lsn, bytes(payload)) for lsn, _, _, payload, _ in recovery.records()]
        recovery.cut_tail()
        kind = Leaving if world.is_full else StaysWhole
        self.leaving = kind(world, self.disk, [body for _, body in found])
        world.led.add(epoch)
        pinned = self._pinned(recovery)
        world.opened(name, [*pinned, *found], epoch, self.leaving, recovery.oldest)
        if recovery.oldest > self.leaving.told_first:
            told = f"it was told again from {self.leaving.told_first} on"
            world.fault(f"H6: the log of {name} begins with segment {recovery.oldest}, {told}")
        self.leaving.sequence = world.reader.opens(self.leaving.sequence, found, epoch)
        times = [world.times[body][0] for _, body in found if body in world.times]
        clock.begin_at(max(times, default=0) + 1)
        for gone in re.findall(GONE, b"".join(body for _, body in found)):
            self.disk.unlink(FOLDER / FILES_FOLDER / gone.decode())
        self.lsn, self.number = recovery.next_lsn, recovery.next_number - 1
        self.leaving.begun_with(recovery)
        self.fd = self.salt = self.at = None
        self.batch = None
        self._begin()
        recovery.seal_tail()
        self.write(1)

    def _begin(self):
        old = self.fd, self.at, self.salt
        self.number += 1
        spare = FOLDER / "spare.log"
        self.disk.unlink(spare)
        fd = self.disk.open(spare, CREATE)
        self.disk.allocate(fd, SEGMENT)
        oldest = self.leaving.oldest_for(self.lsn)
        header = pack_segment_header(Author(UID, self.epoch), self.number, self.lsn, oldest)
        write_all(self.disk, fd, [header], 0)
        self.disk.fdatasync(fd)
        self.disk.rename(spare, segment_file(FOLDER, self.number))
        self.disk.fsync_dir(FOLDER)
        self.leaving.begun(self.number, oldest)
        self.primary.begun(self.number, header, SEGMENT)
        if old[0] is not None:
            seal = pack_seal(self.lsn, old[2])
            write_all(self.disk, old[0], [seal], old[1])
            self.primary.written(self.number - 1, old[1], seal)
            self.disk.fdatasync(old[0])
            self.disk.close(old[0])
        self.fd, self.at = fd, SEGMENT_HEADER_BYTES
        self.salt = unpack_segment_header(header).salt

    def write(self, records):
        """Records on their way; one batch at a time."""
        told = self.leaving.tells(self.number, self.lsn)
        files = [told] if told else [self._names_a_file() for _ in range(records)]
        payloads = [
            b"(%d %s%s)" % (next(self.world.bodies), self.name.encode(), file) for file in files
        ]
        for payload in payloads:
            self.world.times[payload] = self.clock_ms(), self.world.now_s, self.epoch
            self.leaving.sent(payload, is_of_client=self.epoch == max(self.world.led))
        size = sum(record_bytes(len(payload)) for payload in payloads)
        if self.at + size + RECORD_HEADER_BYTES > SEGMENT:
            self._begin()
        entries = [
            Entry(self.number, self.lsn + n, KIND, 1, (payload,), len(payload))
            for n, payload in enumerate(payloads)
        ]
        data = b"".join(pack_records(entries, self.salt))
        self.world.written_in |= dict.fromkeys(payloads, self.number)
        end = write_all(self.disk, self.fd, [data], self.at)
        self.primary.written(self.number, self.at, data)
        records = [(entry.lsn, payload) for entry, payload in zip(entries, payloads, strict=True)]
        self.batch = [records, (self.number, self.at, data), None]
        self.at, self.lsn = end, self.lsn + len(payloads)

    def _names_a_file(self):
        """Of a record: at times a file that is there in full, or one that is needed no more."""
        rng, files = self.world.rng, self.world.files
        how = rng.random()
        if how < 0.05:
            bits = rng.getrandbits
            name = f"{bits(64):016x}-{bits(32):08x}-{bits(256):064x}"
            self._store(name, rng.randbytes(rng.randint(0, 2000)))
            return b" +%s" % name.encode()
        if how < 0.08 and files:
            name = rng.choice(sorted(files))
            del files[name]
            return b" -%s" % name.encode()
        return b""

    def _store(self, name, data):
        """As the files of messages are: whole, safe and with their name before a record has it."""
        part, file = FOLDER / FILES_FOLDER / "upload", FOLDER / FILES_FOLDER / name
        self.disk.unlink(part)
        with opened(self.disk, part, CREATE) as fd:
            write_all(self.disk, fd, [data], 0)
            self.disk.fsync(fd)
        self.disk.rename(part, file)
        self.disk.fsync_dir(FOLDER)
        self.world.stored[name.encode()] = data
        self.primary.file_there(name)

    def step(self):
        """Sync, or see whether enough copies have it."""
        if self.batch is None:
            return False
        if self.batch[2] is None:
            self.disk.fdatasync(self.fd)
            self.world.synced[self.name] |= {payload for _, payload in self.batch[0]}
            with self.primary._changed:
                self.batch[2] = self.primary._synced_here()
        elif self.primary._is_confirmed(self.batch[2]):
            records, place, _ = self.batch
            self.batch = None
            self.world.confirm(self.name, self.epoch, records, place, self.leaving.pins)
            for gone in re.findall(GONE, b"".join(body for _, body in records)):
                self.disk.unlink(FOLDER / FILES_FOLDER / gone.decode())
                self.primary.file_gone(gone.decode())
            if self.leaving.let_go(records[-1][0]):
                self.primary.kept()
        return True

    def _pinned(self, recovery):
        """Records of segments behind the log that hold what is needed."""
        found = []
        for number in sorted(n for n in self.leaving.pins if n < recovery.oldest):
            try:
                for lsn, _, _, payload, _ in recovery.pinned_records(number):
                    found.append((lsn, bytes(payload)))
            except FileNotFoundError:
                self.world.fault(f"H6: {self.name} leads and lacks the pinned segment {number}")
        return found


class Applying:
    """A hot standby that applies half of what is left in each of its turns, in bytes of a segment,
    and begins anew where the log was cut."""

    def __init__(self):
        self.place = NOTHING

    verified = None

    def hurry(self):
        """It is as quick as it can."""

    def turn(self, confirmed, *, is_idle):
        if confirmed < self.place:
            self.place = NOTHING
        if confirmed.segment > self.place.segment:
            self.place = Place(max(self.place.segment + 1, confirmed.segment - 1), 0)
        elif confirmed > self.place:
            left = confirmed.offset - self.place.offset
            self.place = Place(self.place.segment, confirmed.offset - left // 2)
        return is_idle and confirmed != self.place


class Process:
    """One start of one replica."""

    def __init__(self, world, name):
        self.world, self.name = world, name
        disk = world.disks[name]
        if world.is_full:
            DirectoryLock(disk, FOLDER)  # until the process ends
        self.arbiter = MemoryArbiter(world.engine, name)
        state = state_of(disk, FOLDER, name, LOG, world.make_id)
        self.start = state.starts + 1
        about = name, state.copy_id, self.start, state.promised, LOG, LEASE_S
        self.leadership = Leadership(*about, is_async=name in world.asynchronous)
        self.primary = self.log = self.candidate = None
        self.applies = Applying()
        self.clock = EvenClock(lambda: world.wall_ns(name), lambda: int(world.clock_s(name) * 1e9))
        self.follower = Follower(
            world.group(name),
            FOLDER,
            disk,
            self.arbiter,
            self.leadership,
            state,
            lambda _what: None,
            lambda: None,
            lambda group, primary: Line(world.net, group.me, primary),
            lambda: world.clock_s(name),
            limits=world.past_limits,
            applies=self.applies,
        )
        self.follower.begin()

    def step(self):
        if self.primary is None:
            if self.candidate is None:
                self._follow()
            else:
                self._ask()
            return
        if self.log is None:
            self._read()
            return
        how = self.world.rng.random()
        if how < 0.3:
            self.primary._serve_once()
        elif how < 0.4:
            self._serve_and_write()
        elif how < 0.6:
            self.primary._keep_once()
        elif not self.log.step() and not self.world.is_healing:
            self.log.write(self.world.rng.randint(1, 4))
        if self.primary._fault is not None:
            raise self.primary._fault

    def _serve_and_write(self):
        """A storage worker writes between what the link does."""
        primary = self.primary
        for parts in primary._socket.received():
            primary._receive(parts[0], parts[1:])
        primary._send_outbox()
        if not self.log.step() and not self.world.is_healing:
            self.log.write(1)
        for link in list(primary._links.values()):
            primary._catch_up(link)

    def _follow(self):
        won = self.follower.step(0)
        if won is None:
            return
        self.follower.end()
        world, name = self.world, self.name
        world.granted(name, self.start, won.configuration.epoch)
        self.won, self.socket = won, Socket(world.net, name)
        about = world.disks[name], self.arbiter, self.leadership, won.configuration, self.socket
        self.candidate = Candidate(world.group(name), FOLDER, *about, lambda: world.clock_s(name))
        self.candidate.begin()
        self._ask()

    def _ask(self):
        """For promises, until it is known who leads."""
        outcome = self.candidate.step()
        if outcome is None:
            return
        self.world.outcomes[type(outcome).__name__] += 1
        self.candidate.end(outcome)
        came, self.candidate = self.candidate.came, None
        if isinstance(outcome, Lead):
            self._lead(came)
        else:
            self.follower.begin()

    def _lead(self, came):
        world, name, won = self.world, self.name, self.won
        world.opening(name, won.configuration)
        if self.follower.told is None:  # a boot: nobody here knows for how long the node was down
            world.untold.add(won.configuration.epoch)
        if (told_ms := won.node_ms(world.clock_s(name))) is not None:
            self.clock.go_on_from(told_ms)
        self.primary = Primary(
            world.group(name),
            FOLDER,
            world.disks[name],
            self.arbiter,
            self.leadership,
            won.configuration,
            self.socket,
            silent_since_s=won.silent_since_s,
            clock_s=lambda: world.clock_s(name),
            clock_ms=self.clock,
            came=came,
        )
        self.primary.start = lambda: None
        self.reads_until_s = world.now_s + world.reading_s()

    def _read(self):
        """Its log, which may take longer than a lease."""
        world = self.world
        if world.now_s >= self.reads_until_s:
            epoch = self.won.configuration.epoch
            self.log = Log(world, self.name, self.primary, epoch, self.clock)
            return
        self.primary._serve_once()
        self.primary._keep_once()
        if self.primary._fault is not None:
            raise self.primary._fault


class World:
    """Everything from one seed. faults: what went against an invariant."""

    def __init__(self, seed, copies=2, *, confirm="", far=0, is_full=False):
        """confirm: ALL, or as the seed says; far: so many further copies are asynchronous; with an
        odd seed an operator changes at times which ones; is_full: also with what is newer than the
        seeds that are known to find a planted fault: segments leave the log, an operator promotes a
        copy with a loss, removes and adds copies, disks refuse and fill up, what is said one way
        stands still, clocks of machines are set."""
        self.rng = random.Random(seed)
        self.names = "abcdefg"[: copies + far]
        self.asynchronous = frozenset(self.names[copies:])
        self.always_far, self.changes_of_mode = self.asynchronous, 0
        is_all = (copies > 2 and self.rng.random() < 0.2) or confirm == "ALL"
        copies_min = self.rng.choice((1, 2)) if copies > 2 else 1
        self.limits = Limits(copies_min, 2.0, 20.0, is_all=is_all)
        self._begin_all(seed, is_full=is_full)
        self.outcomes = Counter()
        self.now_s = 1000.0
        self.bodies = count(1)
        self.faults, self.terms = [], {}
        self.confirmed, self.last_place, self.role_changes = [], None, 0
        self.confirmed_in, self.bodies_of = {}, {}
        """Epoch and body by number of the record."""
        self.switchovers = self.applied_known = 0
        self.read = NOTHING, b""
        self.places = {}
        self.stored, self.files = {}, {}
        """Bytes of files by name, and those of them that confirmed records need."""
        self.set_aside = self.attacks = 0
        self.clocks = {
            name: (self.rng.uniform(-1e6, 1e6), self.rng.uniform(0.99, 1.01)) for name in self.names
        }
        walls = random.Random(f"walls {seed}")
        self.walls_s = {name: walls.uniform(-WALL_S, WALL_S) for name in self.names}
        self.times, self.untold = {}, set()
        """Of records: the node's time and the true time in which they were written, and the epoch;
        epochs whose primary was told no time."""
        self.timed = None
        self.synced = {name: set() for name in self.names}
        self.is_healing = True
        self.engine = MemoryEngine(lambda: self.now_s, LEASE_S)
        self.net = Net(self.rng, self._acked)
        self.disks = {name: self._disk() for name in self.names}
        self.backups, self.lost, self.paused = {}, {}, {}
        # of a lost copy, by name and id: the epoch that it had promised by then
        self.promises, self.retired = {}, {}
        self.damaged, self.damages = {}, 0
        first = CopyState(LOG, self.make_id())
        write_state(self.disks["a"], FOLDER, first)
        member = Member("a", first.copy_id)
        MemoryArbiter(self.engine, "init").begin(Configuration(1, LOG, members=(member,)))
        self._decoded, self._version, self._members = (b"", None), 1, 1
        self.processes = {}
        self.is_healing = False
        self._acts = (
            (0.004, self._kill_one),
            (0.002, self._kill_all),
            (0.003, self._pause),
            (0.003, self._partition),
            (0.018, lambda _name: self.net.heal()),
            (0.004, self.engine.unreachable.add),
            (0.003, self.engine.mute.add),
            (0.023, self._reach_arbiter),
            (0.002, self._end_lease),
            (0.004, self._switch_over),
            (0.02, self._attack),
            (0.002, self._back_up),
            (0.0005, self.restore),
            (0.0005, self._lose_disk),
            (0.002, partial(mishaps.flip, self)),
        )
        if far and seed % 2:
            self._acts += ((0.003, self._change_mode),)
        if is_full:
            self._acts += (
                (0.004, self._promote),
                (0.001, self._leave_behind),
                (0.002, self._doom),
                (0.002, self._stall),
                (0.01, lambda _name: self.net.stalled.clear()),
                (0.001, self._fill_up),
                (0.01, self._free),
                (0.002, self._fail_once),
                (0.002, self._set_clock),
                (0.002, self._remove),
                (0.006, self._add),
                (0.002, partial(mishaps.zero, self)),
                (0.002, partial(mishaps.boot_twice, self)),
                (0.0005, partial(mishaps.lose_arbiter, self)),
                (0.01, partial(mishaps.restore_arbiter, self)),
                (0.001, partial(mishaps.flap, self)),
            )

    def _begin_all(self, seed, *, is_full):
        """What only a world where everything happens has."""
        self.is_full, self.led = is_full, set()
        self.past_limits = limits_of(random.Random(f"past {seed}")) if is_full else NO_LIMITS
        self.reader, self.segment_of = Reader(self), {}
        """Segments of confirmed records by their numbers."""
        self.promoted, self.promoted_in, self.may_fall = "", 0, set()
        """Who is to lead after an operator's loss, behind which epoch; copies that still say what
        they had before."""
        self.happened = Counter()
        self.kept_value = self.wrong_value = None
        """What the arbiter had before it lost its data, and what it has since."""
        self.flapping = frozenset(), 0.0
        self.held, self.doomed = {}, ""
        """Machines that are off, until when; who alone is left of a group."""
        self.adopted, self.written_in, self.gone = set(), {}, set()
        """Bodies that some primary began with, or that were confirmed; segments by body; what a
        promotion lost at some time."""
        self.removals = self.refusals = self.left = self.promotions = self.losses = (
            self.told_lost
        ) = 0

    def _disk(self):
        disk = Disk(self.rng)
        disk.before = self._before
        return disk

    def _before(self, _call, _inode):
        if not self.is_healing and self.rng.random() < 0.0004:
            raise Crash(is_power=self.rng.random() < 0.5)

    def clock_s(self, name):
        """What the machine's clock says: it never steps, and agrees with no other one."""
        begun_s, drift = self.clocks[name]
        return begun_s + self.now_s * drift

    def wall_ns(self, name):
        """What the machine's clock says that is set by somebody: wrong by days."""
        return int((BEGUN_S + self.now_s + self.walls_s[name]) * 1e9)

    def reading_s(self):
        """How long a log is read."""
        return self.rng.random() * 3 * LEASE_S if self.rng.random() < 0.1 else 0

    def make_id(self):
        return f"{self.rng.getrandbits(128):032x}"

    def group(self, me):
        far = self.asynchronous
        peers = {n: Peer(n, f"tcp://{n}", is_async=n in far) for n in self.names}
        return Group("n", me, peers, LEASE_S, self.limits)

    # the invariants

    def fault(self, text):
        self.faults.append(text)

    def granted(self, name, start, epoch):
        """H1: an epoch has one start of one replica; H10: epochs rise."""
        self.role_changes += 1
        if self.kept_value is not None:
            self.fault(f"ARBITER: {name} leads in epoch {epoch}, of an arbiter without data")
        if epoch in self.terms or epoch <= max(self.terms, default=0):
            self.fault(f"H1: epoch {epoch} was granted to {self.terms.get(epoch)} and to {name}")
        self.terms[epoch] = name, start
        if name in self.always_far:
            self.fault(f"ASYNC: {name} leads")
        now = self.configuration()
        if now.copies != copies_needed(len(now.members), is_all=self.limits.is_all):
            self.fault(f"A: {now.copies} of {len(now.members)} copies confirm")
        if self.rng.random() < 0.2:
            self.same_bytes()

    def opening(self, name, granted):
        """So many clean copies have promised that fewer than a confirmation takes are left."""
        have = {
            one.copy_id
            for one in granted.members
            if self.lost.get((one.name, one.copy_id), 0) >= granted.epoch
            or (
                (one.name, one.copy_id) not in self.lost
                and self._is_copy(one.name, one.copy_id)
                and self._state(one.name).promised >= granted.epoch
            )
        }
        if len(have) < promises_needed(granted):
            text = f"{len(have)} of {promises_needed(granted)} copies have promised"
            self.fault(f"T: {name} opens epoch {granted.epoch}, {text}")

    def opened(self, name, found, epoch, told, oldest):
        """H6: whoever leads holds every record that an older epoch confirmed, but for those that
        were needed no more and left. One that comes late to its epoch, when a newer one is led,
        finds too few copies to confirm anything."""
        there = dict(found)
        needed = {
            lsn
            for lsn, _ in self.confirmed
            if self.segment_of[lsn] >= told.told_first or self.segment_of[lsn] in told.pins
        }
        if name == self.promoted and epoch > self.promoted_in:
            loss.accept(self, name, there, needed, oldest)
        missing = [
            lsn
            for lsn, body in self.confirmed
            if lsn in needed and self.confirmed_in[lsn] < epoch and there.get(lsn) != body
        ]
        self.adopted.update(there.values())
        self.check_read(name, epoch)
        if missing:
            self.fault(f"H6: {name} leads and lacks {len(missing)} confirmed, from {missing[0]} on")
        for file, (data, _) in (o for o in self.files.items() if o[1][1] < epoch):
            inode = self.disks[name].names.get(f"{FILES_FOLDER}/{file}")
            if inode is None or inode.cache != data:
                self.fault(f"H11: {name} leads and lacks file {file}")

    def look_at_readable(self):
        """What a reader of a copy may see by now."""
        for name in self.names:
            disk = self.disks[name]
            told = disk.names.get("CONFIRMED")
            place = None if told is None else place_in(bytes(told.cache))
            if place is not None and self.may_fall and not loss.rises_again(self, name, place):
                continue
            if place is not None and place < self.places.get(name, NOTHING):
                self.fault(f"H10: {name} may be read up to {place}, was {self.places[name]}")
            if place is not None:
                self.places[name] = place
            if place is not None and place > self.read[0]:
                file = disk.names.get(segment_file(FOLDER, place.segment).name)
                there = b"" if file is None else bytes(file.cache[: place.offset])
                if len(there) < place.offset:
                    self.fault(f"H9: {name} may be read up to {place}, and has {len(there)} bytes")
                self.read = place, there

    def check_read(self, name, epoch):
        """H9: whoever leads has all that a reader of any copy may have seen of an older epoch."""
        place, seen = self.read
        file = self.disks[name].names.get(segment_file(FOLDER, place.segment).name)
        is_older = seen and unpack_segment_header(seen[:SEGMENT_HEADER_BYTES]).epoch < epoch
        if is_older and (file is None or bytes(file.cache[: place.offset]) != seen):
            self.fault(f"H9: {name} leads and lacks what was readable, up to {place}")

    def confirm(self, name, epoch, records, place, pins=()):
        """H10, H4 and H18: a number is what ids and fencing tokens are made of."""
        last = self.confirmed[-1][0] if self.confirmed else 0
        for lsn, body in records:
            if self.bodies_of.setdefault(lsn, body) != body:
                self.fault(f"H18: number {lsn} is that of two confirmed records")
        self.confirmed_in |= {
            lsn: min(epoch, self.confirmed_in.get(lsn, epoch)) for lsn, _ in records
        }
        self.segment_of |= {lsn: place[0] for lsn, _ in records}
        if records[0][0] <= last:
            self._late(name, epoch, records, place)
            return
        self.confirmed += records
        self.last_place = place
        self.check_durable("H4")
        self.reader.confirmed(records)
        self.adopted.update(body for _, body in records)
        if self.is_full:
            self._check_whole(epoch, place[0], pins)
        self._check_times(records)
        self._check_files(records, epoch)

    def _check_whole(self, epoch, newest, pins):
        """H4: so many members have the whole log before it, too: every segment from the one on that
        their own newest header names, and the pinned ones."""
        now, have = self.configuration(), 0
        lacks = {}
        for one in now.members:
            is_it = (one.name, one.copy_id) in self.lost or self._is_copy(one.name, one.copy_id)
            lacks[one.name] = self._lacks(one.name, newest, pins)
            is_lost = (one.name, one.copy_id) in self.lost
            have += is_lost or (is_it and not lacks[one.name])
        if have < now.copies:
            self.fault(f"H4: {have} of {now.copies} copies are whole in epoch {epoch}: {lacks}")

    def _lacks(self, name, newest, pins):
        """Segments that a copy would miss if it led."""
        disk = self.disks[name]
        logs = {int(n[:16]) for n in disk.safe_names if n.endswith(".log") and n != "spare.log"}
        pinned = {int(n[:16]) for n in disk.safe_names if n.endswith(".pinned")}
        if not logs:
            return {newest}
        header = unpack_segment_header(disk.safe(segment_file(FOLDER, max(logs)).name)[:64])
        wanted = {*range(header.oldest, max(newest, *logs) + 1)} - logs
        return wanted | ({n for n in pins if n < header.oldest} - logs - pinned)

    def _check_times(self, records):
        """H17: from one confirmed record to the next the node's time goes on as the true time
        does."""
        for _, body in records:
            at_ms, true_s, epoch = self.times[body]
            before, self.timed = self.timed, (at_ms, true_s, epoch)
            if before is None:
                continue
            passed_s = (at_ms - before[0]) / 1000
            most_s = (true_s - before[1]) * (1 + TIME_SHARE) + TIME_SLACK_S
            if passed_s < 0:
                self.fault(f"H17: the node's time went back by {-passed_s:.3f} s")
            elif passed_s > most_s and self.untold.isdisjoint(range(before[2] + 1, epoch + 1)):
                self.fault(f"H17: {passed_s:.1f} s passed in {true_s - before[1]:.1f} s")

    def _check_files(self, records, epoch):
        """H11: enough members have each file that a confirmed record names, safe."""
        now = self.configuration()
        for file in re.findall(STORED, b"".join(body for _, body in records)):
            name, data = file.decode(), self.stored[file]
            self.files[name] = data, epoch
            have = sum(
                (one.name, one.copy_id) in self.lost
                or (
                    self._is_copy(one.name, one.copy_id)
                    and f"{FILES_FOLDER}/{name}" in self.disks[one.name].safe_names
                    and self.disks[one.name].safe(f"{FILES_FOLDER}/{name}") == data
                )
                for one in now.members
            )
            if have < now.copies:
                self.fault(f"H11: file {name} is at {have} of {now.copies} copies")

    def _late(self, name, epoch, records, place):
        """One that was paused tells of a record that enough copies had before: whoever leads now
        has it in the same place."""
        newest, self.last_place = self.last_place, place
        before = len(self.faults)
        self.check_durable(f"H10: {name} in epoch {epoch}")
        if len(self.faults) == before:
            self.confirmed = sorted({*self.confirmed, *records})
            self.last_place = newest

    def configuration(self):
        value = self.engine.value if self.kept_value is None else self.kept_value
        if self._decoded[0] is not value:
            self._decoded = value, decode_configuration(value, "sim")
        return self._decoded[1]

    def promises_needed_now(self):
        """T."""
        return promises_needed(self.configuration())

    def check_durable(self, which="H5"):
        """What was confirmed last is safe at enough members of what the arbiter has."""
        if self.last_place is None:
            return
        now, (number, at, data) = self.configuration(), self.last_place
        have = 0
        for member in now.members:
            if (member.name, member.copy_id) in self.lost:
                have += 1  # its machine has a new disk: the arbiter does not know yet
                continue
            disk = self.disks[member.name]
            safe = disk.safe(segment_file(FOLDER, number).name)
            state = self._state(member.name)
            is_it = state is not None and state.copy_id == member.copy_id
            have += is_it and safe[at : at + len(data)] == data
        if have < now.copies:
            lsn = self.confirmed[-1][0]
            self.fault(f"{which}: {lsn} is at {have} of {now.copies} copies, version {now.version}")
            self.last_place = None

    def _state(self, name):
        data = self.disks[name].safe("REPLICA")
        return msgspec.json.decode(data, type=CopyState) if data else None

    def _acked(self, name, epoch):
        """H3: who says that it has something of an epoch has promised it, for good."""
        state = self._state(name)
        if state is None or state.promised < epoch:
            self.fault(f"H3: {name} answers epoch {epoch} before its promise is safe")
        if state is not None and state.promised > epoch:
            self.fault(f"H3: {name} takes frames of epoch {epoch}, it promised {state.promised}")

    def check_promises(self):
        """H3: a promise never falls."""
        for name in self.names:
            if (state := self._state(name)) is not None:
                before = self.promises.get(state.copy_id, 0)
                if state.promised < before:
                    self.fault(f"H3: {name} promised {before}, and now {state.promised}")
                self.promises[state.copy_id] = max(before, state.promised)

    def check_members(self):
        """H13: one that went back counts again when it was taken in anew: from then on its disk is
        looked at like any other's."""
        now = self.configuration()
        members = now.members
        if now.version != self._version:
            if far := self.always_far & {member.name for member in members}:
                self.fault(f"ASYNC: {', '.join(far)} counts")
            if len(members) < min(self.limits.copies_min, self._members) and not now.is_forced:
                text = f"{len(members)} of {self._members} members are left"
                self.fault(f"N: {text}, copies_min is {self.limits.copies_min}")
            self._version, self._members = now.version, len(members)
        for copy_id in self.retired.keys() - {member.copy_id for member in members}:
            self.retired[copy_id] = 0  # it counts no more, and may be taken in like a new one
        for member in members:
            if member.start > self.retired.get(member.copy_id, 1 << 30) and self._runs(member):
                del self.retired[member.copy_id]
                self.lost.pop((member.name, member.copy_id), None)

    def _runs(self, member):
        """It was taken in for what this process said, not for what one before it had said."""
        process = self.processes.get(member.name)
        return process is not None and process.start == member.start

    def same_bytes(self):
        """H2: of one writer, two copies have the same bytes as far as both go."""
        for one, other in combinations(self.names, 2):
            self._same_bytes(self.disks[one], self.disks[other])

    def _same_bytes(self, a, b):
        first, second = self._segments(a), self._segments(b)
        for number in sorted(first.keys() & second.keys()):
            names = first[number], second[number]
            one, other = a.names[names[0]].cache, b.names[names[1]].cache
            if one[:SEGMENT_HEADER_BYTES] != other[:SEGMENT_HEADER_BYTES]:
                continue
            if not self.is_healing and self.rng.random() < 0.8:
                continue
            end = min(self._end(disk, name) for disk, name in zip((a, b), names, strict=True))
            if one[:end] != other[:end]:
                self.fault(f"H2: {names[0]} differs below {end}")

    def _end(self, disk, name):
        """Behind its last record that verifies."""
        disk.is_dead, was_dead = False, disk.is_dead
        disk.before, before = lambda _call, _inode: None, disk.before
        try:
            number = int(name[:16])
            info = read_info(disk, FOLDER / name, number, is_last=True)
            with opened(disk, info.file) as fd:
                walk = Walk(disk, fd, info)
                deque(walk.records(), maxlen=0)
                return walk.at
        finally:
            disk.is_dead, disk.before = was_dead, before

    def nothing_vanished(self):
        """What a primary had synced on its disk, and nobody adopted, is set aside there. What was
        adopted may have left the log since; what a promotion lost was adopted by nobody."""
        oldest = max((o.log.leaving.first for o in self.processes.values() if o.log), default=1)
        for name in self.names:
            aside = aside_names(self.disks[name], FOLDER)
            data = self.kept_bytes(name)
            missing = [
                body
                for body in self.synced[name]
                if body not in data
                and not (body in self.adopted and self.written_in[body] < oldest)
            ]
            self.set_aside += len(aside)
            if missing and len(aside) < ASIDE_MAX:
                self.fault(f"H7: {name} had synced {sorted(missing)[:3]}, which it lacks now")

    def kept_bytes(self, name, suffix=""):
        """Of all segments that a machine has, also of those that were set aside."""
        names = self.disks[name].names
        kept = [one for one in names if one[:1].isdigit() and one.endswith(suffix)]
        return b"".join(bytes(names[one].cache) for one in sorted(kept))

    def _segments(self, disk):
        """Names of segments by number, of the log and of what has left it; the name in the log
        where a crash left two."""
        order = (".history", ".pinned", ".log")
        names = [n for one in order for n in disk.names if n.endswith(one) and n != "spare.log"]
        return {int(name[:16]): name for name in names}

    # what happens

    def run(self, steps=6000):
        """Until so many steps, or a fault; then all is healed and has to go on."""
        for _ in range(steps):
            self.step()
            if self.faults:
                return self.faults
        self.heal()
        return self.faults

    def step(self):
        self.now_s += self.rng.choice((0, 0, 0.01, 0.05, 0.2))
        self.net.carry()
        if not self.is_healing:
            self.happen()
        mishaps.flaps(self)
        if self.doomed:
            self._promote(self.doomed)
            if self.promoted or self._led():
                self.doomed = ""
        for name in self.names:
            if self.paused.get(name, 0) > self.now_s:
                continue
            for _ in range(self.rng.randint(1, 3)):
                self.turn(name)
        self.look_at_readable()
        if self.is_full:
            mishaps.check_arbiter(self)
            mishaps.look_at_applied(self)
        self.check_durable()
        self.check_promises()
        self.check_members()
        self.check_damage()

    def turn(self, name):
        try:
            if name not in self.processes:
                if not self._is_off(name) and (self.is_healing or self.rng.random() < 0.05):
                    self.disks[name].start()
                    self.processes[name] = self.begins(name)
                return
            self.processes[name].step()
        except Crash as crash:
            self.kill(name, is_power=crash.is_power)
        except ArbiterUnavailable:
            pass
        except (ReplicaWentBack, ReplicaUnknown) as fault:
            self.kill(name, is_power=False)
            if self.kept_value is None:
                self.replace_disk(name)
            self._reports(fault)
        except StoreCorrupt as fault:
            self.fault(f"damage at {name}: {fault}")
            self.kill(name, is_power=False)
        except HmsError as fault:
            self.kill(name, is_power=False)
            self._reports(fault)
        except OSError:  # what a process cannot write ends it
            self.refusals += 1
            self.kill(name, is_power=False)

    def _reports(self, fault):
        if self.kept_value is not None:
            is_it = isinstance(fault, ReplicaUnknown | ArbiterDamaged)
            self.happened["lost arbiter reported"] += is_it

    def begins(self, name):
        """A process of this copy."""
        return Process(self, name)

    def _is_off(self, name):
        """Also one that an operator keeps stopped until the promoted one leads."""
        if self.held.get(name, 0) > self.now_s:
            return True
        self.held.pop(name, None)
        return self.promoted not in ("", name)

    def kill(self, name, *, is_power):
        if name in self.processes:
            del self.processes[name]
        self.disks[name].fail(is_power=is_power)
        if is_power:
            self.places.pop(name, None)
        self.net.gone(name)
        self.paused.pop(name, None)

    def happen(self):
        """One of the things that happen, at times."""
        how, name = self.rng.random(), self.rng.choice(self.names)
        for share, act in self._acts:
            how -= share
            if how < 0:
                act(name)
                return

    def _change_mode(self, name):
        """In hms.conf of each machine; one that leads has it at once, as `hms replica add` says,
        the others when they begin anew."""
        far = self.asynchronous ^ {name}
        if len(far) > len(self.names) - self.limits.copies_min or self.lost:
            return
        self.asynchronous, self.changes_of_mode = far, self.changes_of_mode + 1
        self.always_far -= {name}
        self._tell_modes()

    def _tell_modes(self):
        for process in self.processes.values():
            if process.log is None:
                continue
            known, peers = process.primary._confirmation.asynchronous, self.group("").peers
            for name in (known ^ self.asynchronous) - {process.name}:
                with suppress(ReplicaChangeRefused):  # the arbiter is away: said again later
                    process.primary.add(name, peers)

    def _stall(self, name):
        """What one says to another does not arrive, and the other way it does."""
        self.happened["one-way cuts"] += 1
        self.net.stalled.add((name, self.rng.choice(self.names)))

    def _fill_up(self, name):
        self.disks[name].is_full = True

    def _free(self, _name):
        for disk in self.disks.values():
            disk.is_full = False

    def _fail_once(self, name):
        """The next sync of the disk fails, and what it was to save may be lost (P7)."""
        self.disks[name].fails = True

    def _set_clock(self, name):
        self.walls_s[name] += self.rng.uniform(-STEP_S, STEP_S)

    def _led(self):
        return [one for one in self.processes.values() if one.log is not None]

    def _promote(self, name):
        """The command looks, no process that may be killed."""
        if not self.disks[name].is_dead and self.kept_value is None:
            mishaps.quietly(self, name, lambda _disk: loss.promote(self, name))

    def _leave_behind(self, name):
        """A machine is off for long; what the others let go meanwhile it has in its log."""
        if self.is_spare(name) and not self.doomed:
            self.kill(name, is_power=False)
            self.held[name] = self.now_s + self.rng.uniform(4, 12) * LEASE_S

    def _doom(self, name):
        """All others end, and the one that was left behind is what an operator has."""
        if self.held and not self.doomed and not self.promoted:
            self.doomed = min(self.held)
            del self.held[self.doomed]
            for other in self.names:
                if other != self.doomed:
                    self.kill(other, is_power=False)
                    self.held[other] = self.now_s + 8 * LEASE_S

    def _remove(self, name):
        for process in self._led():
            with suppress(ReplicaChangeRefused):
                process.primary.remove(name)
                self.removals += 1

    def _add(self, _name):
        for process in self._led():
            for name in process.primary._confirmation._removed:
                with suppress(ReplicaChangeRefused):
                    process.primary.add(name, self.group("").peers)

    def _partition(self, name):
        """Everybody from everybody, one from the rest, or one line of two."""
        pairs = [frozenset(pair) for pair in combinations(self.names, 2)]
        how = self.rng.random()
        if how < 0.4:
            cut = pairs
        elif how < 0.8:
            cut = [pair for pair in pairs if name in pair]
        else:
            cut = [self.rng.choice(pairs)]
        self.net.partition(cut)

    def _kill_all(self, _name):
        for one in self.names:
            self.kill(one, is_power=True)

    def _reach_arbiter(self, _name):
        self.engine.unreachable.clear()
        self.engine.mute.clear()

    def _end_lease(self, _name):
        self.engine.leader_until_s = 0.0

    def _pause(self, name):
        self.paused[name] = self.now_s + self.rng.random() * 3 * LEASE_S

    def _kill_one(self, name):
        self.kill(name, is_power=self.rng.random() < 0.5)

    def _attack(self, name):
        """Frames that no copy sends, at either end of the link: refused, and nothing changes."""
        process = self.processes.get(name)
        if process is None:
            return
        self.attacks += 1
        if process.candidate is not None:
            route = self.rng.choice([*process.candidate._routes, b"stranger"])
            parts = hostile.to_candidate(self.rng, LOG, self.configuration())
            process.candidate._receive(route, parts)
        elif process.primary is None:
            if (link := process.follower._link) is not None:
                link.here.append(hostile.to_follower(self.rng, LOG, link.primary))
        elif process.log is not None and process.primary._fault is None:
            routes = [one.route for one in self.net.lines.values() if one.primary == name]
            if routes and self.rng.random() < 0.5:
                parts = hostile.to_primary(self.rng, LOG)
                process.primary._receive(self.rng.choice(routes), parts)
            else:
                route = b"stranger %d" % self.rng.randint(1, 3)
                process.primary._receive(route, hostile.by_stranger(self.rng, LOG))

    def _switch_over(self, name):
        """An operator has the other one lead, if it may; the process begins anew."""
        process = self.processes.get(name)
        if process is None or process.log is None or process.primary._fault is not None:
            return
        try:
            others = [one for one in self.names if one != name]
            to = process.primary.hand_over("" if len(others) == 1 else self.rng.choice(others))
        except SwitchoverRefused:
            return
        self.switchovers += 1
        self._check_applied(process.primary)
        process.primary._to_all(Bye())
        process.primary._resign()
        assert to != name
        self.kill(name, is_power=False)

    def _check_applied(self, primary):
        """Nothing is taken for applied at a copy that is not: it may be more by now."""
        for link in primary._links.values():
            other = self.processes.get(link.member.name)
            if link.applied is None or other is None or link.member.start != other.start:
                continue
            if not other.leadership._is_known:  # of a copy that went back; it is about to hear so
                continue
            self.applied_known += link.applied > NOTHING
            if link.applied > other.applies.place:
                self.fault(f"{other.name} has applied {other.applies.place}, not {link.applied}")

    def _lose_disk(self, name):
        if self.is_spare(name):
            self.kill(name, is_power=False)
            self.replace_disk(name)

    def _back_up(self, name):
        """What is safe."""
        disk = self.disks[name]
        self.backups[name] = {n: bytes(inode.safe) for n, inode in disk.safe_names.items()}

    def is_spare(self, name):
        """Its disk may be lost, with those that are lost already: the others have all, and are
        enough to take over, also when it is about to be a member."""
        now, state = self.configuration(), self._state(name)
        ids = {member.copy_id: member.name for member in now.members}
        gone = {copy_id for _, copy_id in self.lost} & ids.keys()
        mine = set() if state is None else {state.copy_id}
        is_member = bool(mine & ids.keys())
        healthy = {
            copy_id
            for copy_id, one in ids.items()
            if self._is_copy(one, copy_id) and DAMAGE_NAME not in self.disks[one].safe_names
        }  # one that was repaired, and has not seen that yet, leads nobody
        count = len(ids) + (not is_member)
        needed = count - copies_needed(count, is_all=self.limits.is_all) + 1
        left = healthy - gone - mine
        if self.asynchronous and {ids[copy_id] for copy_id in left} <= self.asynchronous:
            return False  # an operator would have to promote one of them
        fits = len(gone | (mine & ids.keys())) < max(now.copies, 2 - is_member)
        return fits and len(left) >= max(needed, promises_needed(now))

    def _is_copy(self, name, copy_id):
        state = self._state(name)
        return state is not None and state.copy_id == copy_id

    def check_damage(self):
        """What was damaged is as it was again: a primary has written it anew, or let it go."""
        for name, (copy_id, file, at, harmed) in list(self.damaged.items()):
            data = self.disks[name].safe(file)
            if not data or data[at : at + len(harmed)] != harmed:
                del self.damaged[name]
                self.lost.pop((name, copy_id), None)

    def replace_disk(self, name):
        """An empty disk under the old name."""
        if not self.is_spare(name):
            return
        if (state := self._state(name)) is not None:
            self.lost[name, state.copy_id] = state.promised
            self.damaged.pop(name, None)
            self.retired.pop(state.copy_id, None)  # what the arbiter is told late is of that disk
        self.disks[name] = self._disk()
        self.places.pop(name, None)
        self.synced[name].clear()

    def replace_two(self, *, at_once):
        """Two machines get new disks while each member counts: with the others when at_once, so
        that whoever leads next finds nobody. True: that many may be lost."""
        self.heal()
        led = [name for name, one in self.processes.items() if one.log is not None]
        spare = [name for name in self.names if name not in led and self.is_spare(name)][:2]
        if at_once:
            self._kill_all("")
        self.is_healing = False
        for name in spare:
            self.kill(name, is_power=True)
            self.replace_disk(name)
        return len(self.lost) >= 2

    def restore(self, name):
        """The machine has what it had at some time before."""
        files = self.backups.pop(name, None) if self.is_spare(name) else None
        state = self._state(name)
        if not files or "REPLICA" not in files or state is None:
            return
        old = msgspec.json.decode(files["REPLICA"], type=CopyState)
        known = [m.start for m in self.configuration().members if m.copy_id == old.copy_id]
        if state.copy_id != old.copy_id or not known or old.starts >= known[0]:
            return  # no start since: it cannot be told from a crash
        self.retired[old.copy_id] = max(*known, state.starts)
        self.kill(name, is_power=False)
        self.lost[name, state.copy_id] = state.promised
        self.damaged.pop(name, None)
        self.synced[name].clear()
        disk = self.disks[name] = self._disk()
        self.places.pop(name, None)
        disk.before = lambda _call, _inode: None
        disk.start()
        for file, data in files.items():
            fd = disk.open(FOLDER / file, CREATE)
            write_all(disk, fd, [data], 0)
            disk.fsync(fd)
            disk.close(fd)
        disk.fsync_dir(FOLDER)
        disk.before = self._before
        self.promises.pop(old.copy_id, None)

    def heal(self):
        """Everything works again: both copies count, and have the same."""
        self.is_healing = True
        self.net.heal()
        self.net.stalled.clear()
        mishaps.restore_arbiter(self)
        self.held.clear()
        self.doomed = ""
        self._free("")
        for disk in self.disks.values():
            disk.fails = False
        self.engine.unreachable.clear()
        self.engine.mute.clear()
        self.paused.clear()
        for name, process in list(self.processes.items()):
            is_async = name in self.asynchronous
            if process.primary is None and process.leadership.is_async != is_async:
                self.kill(name, is_power=False)  # booted with what hms.conf says by now
        for _ in range(HEAL_STEPS):
            self._tell_modes()
            self._add("")
            self.step()
            if self.faults:
                return
            if self.is_whole():
                self.same_bytes()
                self.nothing_vanished()
                return
        self.fault(f"stuck: {self.configuration()}")

    def is_whole(self):
        """All that are to count do, and nobody else; each copy has all."""
        leaders = [one for one in self.processes.values() if one.log is not None]
        counting = {*self.names} - self.asynchronous
        members = {one.name for one in self.configuration().members}
        if not (counting <= members and members - counting <= {one.name for one in leaders}):
            return False
        return any(
            one.log.batch is None and self.asynchronous - members <= self._whole_at(one.primary)
            for one in leaders
        )

    def _whole_at(self, primary):
        rows = primary._confirmation.describe(self.clock_s(primary._group.me))
        return {row["replica"] for row in rows if row["is_in_sync"]}

    def digest(self):
        """What all disks hold."""
        found = hashlib.sha256()
        for name in self.names:
            for file, inode in sorted(self.disks[name].safe_names.items()):
                found.update(file.encode() + bytes(inode.safe))
        return found.hexdigest()
