"""Damage of a copy: told from a torn write, named, and repaired from the other machine; a copy from
yesterday is refused, and replaced by the command that its refusal leads to."""

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from hms.boot.config import load
from hms.boot.replicating import make_arbiter
from hms.errors.catalogue import BootFailed
from hms.history.archive_all import seal
from hms.store.journal.confirmed_place import confirmed_place
from tests.acceptance.ha_rig import WAIT_S, bodies, connect, hms_command, type_switchover
from tests.acceptance.pair_rig import arbiter, pair
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(240)
SMALL = {
    "segment_bytes": "4 MiB",
    "max_message_bytes": "1 MiB",
    "max_transaction_bytes": "1 MiB",
    "replica_timeout_s": 1,
}
HEADER_BYTES = 64


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    with (
        arbiter(folder) as decided_by,
        pair(folder, decided_by, node=SMALL, scrub_s=0.05) as two,
    ):
        two.a.boot()
        two.sent = []
        yield two


@pytest.fixture
def two(made):
    """Both follow or lead, and there is a message more."""
    made.boot()
    send(made)
    return made


def send(two):
    """A message more, confirmed at both as far as they know."""
    two.sent.append(b"message %d;" % len(two.sent))
    with connect(*two.machines) as connection, connection.session() as session:
        session.producer("orders").send(two.sent[-1])
    wait_until(lambda: all(knows(one, two.sent[-1]) for one in two.machines), WAIT_S)


def knows(one, body):
    """It may be read there, by what is confirmed."""
    place = confirmed_place(Path(one.store))
    file = Path(one.store, f"{place.segment:016d}.log")
    return file.exists() and body in file.read_bytes()[: place.offset]


def names(one):
    """Of the log's segments."""
    return sorted(file.name for file in Path(one.store).glob("*.log") if file.stem.isdigit())


def place_of(one, name):
    """A segment under the name that it has by now."""
    files = [Path(one.store, name).with_suffix(end) for end in (".log", ".pinned", ".history")]
    return next(file for file in files if file.exists())


def flip_in(one, name, offset):
    """One bit of a segment, which may get another name just then."""

    def is_done():
        with suppress(FileNotFoundError, StopIteration):
            flip(place_of(one, name), offset)
            return True
        return False

    wait_until(is_done, WAIT_S)


def flip(file, offset):
    """One bit on the disk."""
    with file.open("r+b") as opened:
        opened.seek(offset)
        byte = opened.read(1)[0]
        opened.seek(offset)
        opened.write(bytes([byte ^ 4]))


def is_repaired(one, other, name):
    try:
        here, there = [place_of(each, name).read_bytes().rstrip(b"\0") for each in (one, other)]
    except (FileNotFoundError, StopIteration):  # it gets another name just now
        return False
    return here == there and not Path(one.store, "DAMAGE").exists()


def known_starts(one):
    """How often each machine's process started, as the arbiter knows."""
    config = load(one.config_file)
    arbiter = make_arbiter(config, config.node())
    try:
        return {member.name: member.start for member in arbiter.read().configuration.members}
    finally:
        arbiter.close()


def status(one):
    return hms_command(one, "replica", "status", "--json")[1]


def test_a_bit_in_a_cold_segment_is_found_and_repaired_wherever_it_is(two):
    """At the standby by itself; at the primary an alert says so, and it repairs itself when it
    follows."""
    leader, follower = two.leader, two.follower
    seal(leader.address)
    wait_until(lambda: names(follower) == names(leader), WAIT_S)
    name = names(follower)[0]
    number = int(name[:16])
    seen = len(follower.log)
    flip_in(follower, name, HEADER_BYTES + 40)

    wait_until(lambda: f"segment {number} is repaired" in follower.log[seen:], WAIT_S)
    assert f"segment {number} is damaged" in follower.log[seen:]
    two.wait_for_both()
    wait_until(lambda: is_repaired(follower, leader, name), WAIT_S)

    flip_in(leader, name, HEADER_BYTES + 40)
    with connect(leader) as connection:
        wait_until(lambda: "copy_damaged" in str(connection.administer("alert.list")), WAIT_S)
    wait_until(lambda: '"copy": "damaged"' in status(leader), WAIT_S)
    assert "leads" in hms_command(leader, "replica", "repair")[1]
    assert type_switchover(leader)[0] == 0
    wait_until(lambda: is_repaired(leader, follower, name), WAIT_S)
    two.wait_for_both()
    assert bodies(*two.machines)[-1] == two.sent[-1]


@pytest.mark.parametrize("which", ["newest", "cold"])
def test_a_copy_that_lacks_what_was_confirmed_does_not_lead(two, which):
    """A damaged end of a log is no torn write: cut off, a confirmed send would be lost."""
    leader, follower = two.leader, two.follower
    damaged, other = (follower, leader) if which == "newest" else (leader, follower)
    seal(leader.address)
    wait_until(lambda: names(follower) == names(leader), WAIT_S)
    send(two)
    place = confirmed_place(Path(damaged.store))
    file = place_of(damaged, names(damaged)[-1 if which == "newest" else 0])
    if which == "cold":  # found before it may lead: a take-over does not read the whole history
        flip(file, HEADER_BYTES + 40)
        wait_until(lambda: '"copy": "damaged"' in status(damaged), WAIT_S)
    follower.kill()
    leader.kill()
    if which == "newest":
        flip(file, place.offset - 9)

    damaged.boot()
    wait_until(lambda: "segment" in hms_command(damaged, "replica", "status")[1], WAIT_S)
    wait_until(lambda: '"copy": "damaged"' in status(damaged), WAIT_S)
    other.boot()
    two.wait_for_both()

    if which == "newest":
        assert two.leader is other
    elif two.leader is damaged:  # its history alone is: it lacks nothing, and may lead
        assert type_switchover(damaged)[0] == 0
    wait_until(lambda: is_repaired(damaged, other, file.name), WAIT_S)
    two.wait_for_both()
    other.kill()
    assert bodies(damaged)[-1] == two.sent[-1]


def test_a_copy_from_yesterday_is_refused_and_replaced(two, tmp_path):
    """It is moved aside as a whole, and a new one comes."""
    leader, follower = two.leader, two.follower
    follower.stop()
    shutil.copytree(follower.store, tmp_path / "yesterday")
    before = known_starts(leader)
    follower.boot()
    wait_until(lambda: known_starts(leader) != before, WAIT_S)
    two.wait_for_both()
    follower.stop()
    shutil.rmtree(follower.store)
    shutil.copytree(tmp_path / "yesterday", follower.store)

    with pytest.raises(BootFailed, match="HMS-5068"):
        follower.boot()
    name = follower.folder.name
    wait_until(lambda: "went back" in status(follower) or name not in known_starts(leader), WAIT_S)
    code, said = hms_command(follower, "replica", "repair", "--yes")
    is_moved = "store.aside-1" in said
    # One that the leader has let go meanwhile counts no more: it gets what it lacks where it is.
    assert (code, is_moved or name not in known_starts(leader)) == (0, True), said
    follower.boot()
    wait_until(lambda: '"copy": "counts"' in status(follower), WAIT_S)
    two.wait_for_both()
    leader.kill()
    assert bodies(follower)[-1] == two.sent[-1]
