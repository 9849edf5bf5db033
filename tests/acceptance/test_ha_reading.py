"""A standby is read, never beyond what is confirmed; the past and the archive's mark move along."""

from pathlib import Path

import pytest

from hms.history.archive_all import seal
from hms.history.archive_mark import Mark, read_mark, write_mark
from hms.history.segments import Tail, identity_of_log, sealed
from hms.store.journal.store_examination import examine
from tests.acceptance.ha_rig import WAIT_S, connect, type_switchover
from tests.acceptance.pair_rig import arbiter, pair, readable
from tests.support.waiting import wait_until

SMALL = {
    "segment_bytes": "4 MiB",
    "max_message_bytes": "1 MiB",
    "max_transaction_bytes": "1 MiB",
    "replica_timeout_s": 60,
}


def history(one):
    return sorted(file.name for file in Path(one.store).glob("*.history"))


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The second machine comes when a part of the log is history already."""
    folder = tmp_path_factory.mktemp("pair")
    with arbiter(folder) as decided_by, pair(folder, decided_by, node=SMALL) as made:
        made.a.boot()
        send(made, b"early")
        while not history(made.a):
            seal(made.a.address)
        made.boot()
        yield made


def send(two, *bodies):
    with connect(*two.machines) as connection, connection.session() as session:
        producer = session.producer("orders")
        for body in bodies:
            producer.send(body)


def log_bytes(one):
    return b"".join(file.read_bytes() for file in sorted(Path(one.store).glob("*.log")))


@pytest.mark.timeout(180)
def test_a_reader_sees_what_is_confirmed_and_no_more(two):
    """At the primary, too: what it has alone may never be confirmed (H9)."""
    leader, follower = two.leader, two.follower
    send(two, b"seen")
    for one in two.machines:
        wait_until(lambda one=one: readable(one)[-1:] == [b"seen"], WAIT_S)
    with connect(leader) as connection, connection.session() as session:
        follower.pause()
        late = session.producer("orders").send_async(b"late")
        wait_until(lambda: b"late" in log_bytes(leader), WAIT_S)
        before = Tail(leader.store).end()

        assert b"late" not in readable(leader)

        follower.resume()
        late.result(WAIT_S)
    for one in two.machines:
        wait_until(lambda one=one: readable(one)[-1:] == [b"late"], WAIT_S)
        assert Tail(one.store).end() > before
    wait_until(lambda: examine(follower.store).verdict == "good", WAIT_S)  # it is written just now


@pytest.mark.timeout(180)
def test_the_past_the_mark_and_the_seals_move_with_the_log(two):
    """After a switchover an archive goes on where it was, at either machine."""
    leader, follower = two.leader, two.follower
    wait_until(lambda: readable(follower)[:1] == [b"early"], WAIT_S)  # it comes behind the log
    wait_until(lambda: history(follower) == history(leader), WAIT_S)
    past = history(leader)
    offset = seal(leader.address)
    wait_until(lambda: sealed(follower.store)[-1].until_offset >= offset, WAIT_S)
    segment = sealed(leader.store)[-1]
    for one, other, until in ((leader, follower, offset - 1), (follower, leader, offset)):
        writer = identity_of_log(one.store)[1].writer_before(until)
        mark = Mark("/srv/archive", until, segment.number + 1, *writer)
        write_mark(one.store, mark)
        wait_until(lambda other=other, mark=mark: read_mark(other.store) == mark, WAIT_S)

    assert type_switchover(leader)[0] == 0
    two.wait_for_both()
    send(two, b"moved")

    assert set(past) <= set(history(leader)) & set(history(follower))
    assert read_mark(follower.store).until_offset == offset
    for one in two.machines:
        wait_until(lambda one=one: readable(one)[-1:] == [b"moved"], WAIT_S)
    assert readable(leader) == readable(follower)
