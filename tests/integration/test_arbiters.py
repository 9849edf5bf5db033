"""One behaviour, whatever the arbiter: in memory, PostgreSQL or etcd."""

import base64
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from hms.errors import (
    ArbiterDamaged,
    ArbiterDriverMissing,
    ArbiterUnavailable,
    ArbiterUnsuitable,
    ArbiterWentBack,
)
from hms.server.arbiter import Configuration, Leader, Member
from hms.server.arbiter.etcd import EtcdArbiter, check_version
from hms.server.arbiter.interface import encode, ended_in
from hms.server.arbiter.memory import MemoryArbiter, MemoryEngine
from hms.server.arbiter.postgresql import PostgresqlArbiter
from tests.support.etcd import Etcd
from tests.support.postgres import postgres_server
from tests.support.waiting import wait_until

LEASE_S = 60
"""None ends by itself while a test goes on; calls of a server are waited for a third of it."""
BRIEF_S = 1
SHORTENED_S = 2
"""What ends by itself while a test waits; a busy server may take as long for one call."""
WAIT_S = 60
FIRST = Configuration(
    version=1,
    log="ab" * 16,
    members=(Member("a", "1" * 32), Member("b", "2" * 32), Member("c", "3" * 32)),
    copies=2,
    copies_min=2,
)


class InMemory:
    """The simulator's, with a clock that the test sets."""

    def __init__(self):
        self.now_s = 0.0
        self.engine = MemoryEngine(lambda: self.now_s, LEASE_S)

    def make(self, me):
        return MemoryArbiter(self.engine, me)

    watching = make

    def end_leases(self):
        self.now_s += LEASE_S

    def shorten(self, _arbiter):
        """Time passes by the test's word only."""

    def until_ended(self, _is_so):
        self.end_leases()

    def put(self, value):
        self.engine.value = value


class Real:
    """A server that the module started; each test has a node of its own. start: of a node's name
    and the seconds of a lease."""

    count = 0

    def __init__(self, start):
        self._start = start
        Real.count += 1
        self.node = f"node{Real.count}"
        self._made = []

    def make(self, _me, lease_s=LEASE_S):
        self._made.append(self._start(self.node, lease_s))
        return self._made[-1]

    def watching(self, me):
        """One that looks often."""
        return self.make(me, BRIEF_S)

    def shorten(self, arbiter):
        """What is granted to it from now on ends soon; how long it waits for the server stays."""
        arbiter.read()
        arbiter._lease_s = SHORTENED_S

    def until_ended(self, is_so):
        wait_until(is_so, WAIT_S)

    def close(self):
        for one in self._made:
            one.close()


class InPostgresql(Real):
    """One row."""

    def end_leases(self):
        """As if their time were over by the server's clock."""
        own = self.make("")
        own.read()
        own._statements._connection.execute(
            "UPDATE hms_arbiter SET lease_until = clock_timestamp(),"
            " preferred_until = clock_timestamp() WHERE node = %s",
            (self.node,),
        )

    def put(self, value):
        own = self.make("")
        own.read()
        own._statements._connection.execute(
            "UPDATE hms_arbiter SET value = %s WHERE node = %s", (value, self.node)
        )


class InEtcd(Real):
    """Three keys."""

    def end_leases(self):
        """As the server does when their time is over."""
        own = self.make("")
        for held in own._look()[1:]:
            if held is not None:
                own._revoke(held["lease"])

    def put(self, value):
        own = self.make("")
        put = own._put_config(FIRST)
        put["requestPut"]["value"] = base64.b64encode(value).decode()
        assert own._transaction([], [put])


@pytest.fixture(scope="module")
def etcd(tmp_path_factory):
    """One server for all tests."""
    server = Etcd(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["memory", "postgresql", "etcd"])
def engine(request):
    """Where the arbiters of a test keep what they have."""
    if request.param == "memory":
        yield InMemory()
        return
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").url
        made = InPostgresql(lambda node, lease_s: PostgresqlArbiter(url, "d", node, lease_s))
    else:
        url = request.getfixturevalue("etcd").url
        made = InEtcd(lambda node, lease_s: EtcdArbiter([url], "d", node, lease_s))
    yield made
    made.close()


@pytest.fixture
def pair(engine):
    """Two replicas, and a first configuration."""
    a, b = engine.make("a"), engine.make("b")
    assert a.read() is None
    assert a.begin(FIRST)
    return a, b


def test_the_first_configuration_is_put_there_once(engine, pair):
    """Two that begin at once: one has done it."""
    a, b = pair

    assert not b.begin(FIRST)
    assert a.read() == b.read()
    assert b.read().configuration == FIRST
    assert b.read().leader is None


def test_an_epoch_is_granted_once(pair):
    """Both saw the same version; who is later is told so, and a leader is not pushed aside."""
    a, b = pair
    won = a.campaign(1, "a", 7)

    assert (won.version, won.epoch, won.primary, won.start) == (2, 1, "a", 7)
    assert b.campaign(1, "b", 3) is None
    assert b.campaign(2, "b", 3) is None
    assert b.read().leader == Leader("a", 1)
    assert b.read().configuration == won


def test_of_many_that_campaign_at_once_one_wins(engine, pair):
    """Each with a connection of its own."""
    made = [engine.make(f"r{n}") for n in range(6)]
    won, gate = [], threading.Barrier(len(made))

    def run(number, one):
        gate.wait(WAIT_S)
        found = one.campaign(1, f"r{number}", 1)
        if found is not None:
            won.append(found)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(made)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(WAIT_S)

    assert len(won) == 1
    assert pair[0].read().configuration == won[0]


def test_a_lease_that_ended_lets_another_one_in_and_its_epoch_is_over(engine, pair):
    """The old leader learns it by its renewal; before that it could have it again."""
    a, b = pair
    a.campaign(1, "a", 1)
    engine.end_leases()
    assert a.renew()
    assert b.read().leader == Leader("a", 1)
    engine.end_leases()
    won = b.campaign(2, "b", 1)

    assert (won.version, won.epoch, won.primary) == (3, 2, "b")
    assert not a.renew()
    assert b.renew()
    assert not engine.make("c").renew()


def test_who_resigned_can_prefer_another(engine, pair):
    """For one lease; then whoever comes."""
    a, b = pair
    a.campaign(1, "a", 1)
    a.resign("c")

    assert not a.renew()
    assert b.read().leader is None
    assert b.campaign(2, "b", 1) is None
    assert engine.make("c").campaign(2, "c", 1).epoch == 2


def test_whoever_saw_a_leader_end_lets_anyone_in_and_says_so(engine, pair):
    """Only of the epoch that the process led; it is told for a lease, whoever campaigns."""
    a, b = pair
    guard = engine.make("guard")
    assert not guard.ended(Leader("a", 1))
    a.campaign(1, "a", 1)
    assert not guard.ended(Leader("b", 1))
    assert not guard.ended(Leader("a", 2))
    assert b.read().leader == Leader("a", 1)

    assert guard.ended(Leader("a", 1))

    assert b.read().leader is None
    assert ended_in(b.read().preferred) == 1
    assert b.campaign(2, "b", 1).epoch == 2
    assert not a.renew()
    assert not guard.ended(Leader("a", 1))
    assert (b.read().leader, ended_in(b.read().preferred)) == (Leader("b", 2), 1)


def test_a_preference_ends(engine, pair):
    """The preferred one may be gone."""
    a, b = pair
    a.campaign(1, "a", 1)
    a.resign("c")
    assert b.campaign(2, "b", 1) is None
    engine.end_leases()

    assert b.campaign(2, "b", 1).epoch == 2
    assert b.read().leader == Leader("b", 2)


def test_what_was_granted_ends_by_itself(engine, pair):
    """By the clock of the server: a lease, and the preference for another."""
    a, b = pair
    engine.shorten(a)
    a.campaign(1, "a", 1)
    engine.until_ended(lambda: b.read().leader is None)
    assert b.read().leader is None
    assert a.renew()
    a.resign("c")
    engine.until_ended(lambda: not b.read().preferred)

    assert b.campaign(2, "b", 1).epoch == 2


def test_a_lease_that_has_ended_is_given_back_without_a_fault(engine, pair):
    """Of etcd, which knows it no more, it was told again and again that it does not answer."""
    a, b = pair
    a.campaign(1, "a", 1)
    engine.end_leases()

    a.resign("c")

    assert not a.renew()
    assert b.read().leader is None
    assert engine.make("c").campaign(2, "c", 1).epoch == 2


def test_only_the_leader_of_the_epoch_changes_the_configuration(engine, pair):
    """By one version at a time, with the same epoch; what is late changes nothing."""
    a, b = pair
    won = a.campaign(1, "a", 1)
    fewer = Configuration(3, won.log, 1, "a", 1, won.members[:2], 2, 2)

    assert not b.change(2, fewer)
    assert not a.change(1, fewer)
    assert not a.change(2, Configuration(3, won.log, 2, "a", 1, won.members, 2, 2))
    assert not a.change(2, Configuration(4, won.log, 1, "a", 1, won.members, 2, 2))
    assert a.change(2, fewer)
    assert b.read().configuration == fewer
    engine.end_leases()
    b.campaign(3, "b", 1)
    assert not a.change(4, Configuration(5, won.log, 2, "b", 1, won.members, 2, 2))


def test_an_operator_has_one_copy_go_on_only_while_no_other_one_leads(engine, pair):
    """By version, too; a copy that has a lease of its own is no obstacle to itself."""
    a, b = pair
    a.campaign(1, "a", 1)
    alone = Configuration(3, FIRST.log, 1, "a", 1, FIRST.members[1:2], 1, 2, lossy=(1,))

    assert not b.force(2, alone)
    engine.end_leases()
    assert not b.force(1, alone)
    assert b.force(2, alone)
    assert a.read().configuration == alone
    assert b.campaign(3, "b", 4) is not None
    later = Configuration(5, FIRST.log, 2, "b", 4, FIRST.members[1:2], 1, 2, lossy=(1, 2))
    assert b.force(4, later)


def test_a_watcher_is_told(engine, pair):
    """It is a hint: it reads for itself."""
    a, _ = pair
    told = threading.Event()
    end = engine.watching("b").watch(told.set)
    wait_until(lambda: told.is_set() or not _campaigned(a, told), WAIT_S)
    end()

    assert told.is_set()


def _campaigned(arbiter, told):
    """Something new again and again, as a watcher may look for the first time after it."""
    standing = arbiter.read()
    if standing.leader is None:
        arbiter.campaign(standing.configuration.version, "a", 1)
    else:
        arbiter.resign()
    return not told.wait(0.1)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"garbage",
        b"{}",
        encode(Configuration(1, "ab", members=FIRST.members, copies=4)),
        encode(Configuration(1, "ab", members=FIRST.members[:1] * 2)),
        encode(Configuration(0, "ab")),
    ],
)
def test_what_is_no_configuration_starts_nothing(engine, pair, value):
    """Somebody else wrote there, or it is damaged."""
    engine.put(value)

    with pytest.raises(ArbiterDamaged):
        pair[0].read()
    with pytest.raises(ArbiterDamaged):
        pair[0].campaign(1, "a", 1)


def test_an_arbiter_that_has_gone_back_is_told_of(engine, pair):
    """As of a backup that was restored: a version below one that was seen."""
    a, b = pair
    a.campaign(1, "a", 1)
    b.read()
    engine.put(encode(FIRST))

    with pytest.raises(ArbiterWentBack):
        b.read()


@pytest.mark.parametrize(
    "make",
    [
        lambda: PostgresqlArbiter("postgresql://hms@127.0.0.1:1/postgres", "d", "n", LEASE_S),
        lambda: EtcdArbiter(["http://127.0.0.1:1"], "d", "n", LEASE_S),
    ],
)
def test_one_that_is_not_reached_says_nothing(make):
    """Unknown, from every call."""
    one = make()
    calls = [one.read, lambda: one.begin(FIRST), lambda: one.campaign(1, "a", 1)]
    for call in calls:
        with pytest.raises(ArbiterUnavailable):
            call()
    assert not one.renew()


def test_why_an_etcd_is_not_reached_is_told_without_its_client():
    """It was 200 characters of pools and retries, in each line of the log and each alert."""
    one = EtcdArbiter(["http://127.0.0.1:1"], "d", "n", LEASE_S)
    with pytest.raises(ArbiterUnavailable) as told:
        one.read()
    said = "Failed to establish a new connection: [Errno 111] Connection refused"
    assert told.value.fields["detail"] == said


def test_a_lease_that_could_not_be_given_to_another_is_when_it_is_asked_again(etcd):
    """Else whoever is first leads when it ends, perhaps the one that handed over."""
    one = EtcdArbiter([etcd.url], "d", "again", LEASE_S)
    one.begin(FIRST)
    one.campaign(1, "a", 1)
    etcd.stop()
    with pytest.raises(ArbiterUnavailable):
        one.resign("c")
    etcd.start()

    def is_resigned():
        try:
            one.resign("c")
        except ArbiterUnavailable:
            return False
        return True

    wait_until(is_resigned, WAIT_S)
    standing = one.read()
    assert (standing.leader, standing.preferred) == (None, "c")
    one.close()


def test_etcd_that_stops_is_unknown_and_goes_on(etcd):
    """The next call goes to the next endpoint; a leader has its lease again."""
    one = EtcdArbiter([etcd.url, "http://127.0.0.1:1"], "d", "stops", LEASE_S)
    one.begin(FIRST)
    one.campaign(1, "a", 1)
    etcd.stop()
    for _ in range(3):
        with pytest.raises(ArbiterUnavailable):
            one.renew()
    etcd.start()

    def is_renewed():
        try:
            return one.renew()
        except ArbiterUnavailable:
            return False

    wait_until(is_renewed, WAIT_S)
    assert one.read().leader == Leader("a", 1)
    one.close()


def test_a_member_of_etcd_that_is_away_is_passed_over(etcd):
    """A command, which asks once, has its answer from the next one; else the last fault is told."""
    one = EtcdArbiter(["http://127.0.0.1:1", etcd.url], "d", "passed", LEASE_S)
    try:
        assert one.read() is None
        assert one.begin(FIRST)
        one.close()
        assert one.read().configuration == FIRST
    finally:
        one.close()
    none = EtcdArbiter(["http://127.0.0.1:1", "http://127.0.0.1:2"], "d", "none", LEASE_S)
    with pytest.raises(ArbiterUnavailable, match=r"http://127\.0\.0\.1:2"):
        none.read()


def test_members_that_stand_still_are_waited_for_no_longer_than_one(monkeypatch):
    """Who asks has its copies to listen to: three of them took a lease together."""
    waited_s = []

    def get(_session, _url, *, timeout):
        waited_s.append(timeout)
        raise TimeoutError

    monkeypatch.setattr("requests.Session.get", get)
    one = EtcdArbiter([f"http://127.0.0.1:{n}" for n in (1, 2, 3)], "d", "still", LEASE_S)
    with pytest.raises(ArbiterUnavailable):
        one.read()
    assert len(waited_s) == 3
    assert sum(waited_s) <= LEASE_S / 3


@pytest.mark.parametrize(
    ("version", "is_good"),
    [("3.3.27", False), ("3.4.23", True), ("3.5.0", False), ("3.5.2", False), ("3.5.3", True)],
)
def test_versions_of_etcd_that_lose_data_are_refused(version, is_good):
    """3.5.0 to 3.5.2 may, after a crash."""
    if is_good:
        check_version("http://127.0.0.1:1", version)
        return
    with pytest.raises(ArbiterUnsuitable):
        check_version("http://127.0.0.1:1", version)


def test_a_postgresql_without_fsync_is_refused():
    """It may lose what it has said to be so."""
    with (
        postgres_server({"fsync": "off"}) as server,
        pytest.raises(ArbiterUnsuitable, match="fsync"),
    ):
        PostgresqlArbiter(server.url, "d", "n", LEASE_S).read()


def test_a_postgresql_that_stands_still_is_unknown_and_goes_on(postgres):
    """Its machine acknowledges what comes, so nothing but the time says that no answer will."""
    patient = PostgresqlArbiter(postgres.url, "d", "still", LEASE_S)
    patient.begin(FIRST)
    patient.close()
    one = PostgresqlArbiter(postgres.url, "d", "still", BRIEF_S)
    wait_until(lambda: _standing(one), WAIT_S)  # a busy one may be late, too
    process = one._statements._connection.info.backend_pid
    os.kill(process, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor() as pool:
            asked = pool.submit(one.read)
            try:
                with pytest.raises(ArbiterUnavailable):
                    asked.result(WAIT_S)
            finally:
                os.kill(process, signal.SIGCONT)
        assert wait_until(lambda: _standing(one), WAIT_S).configuration == FIRST
    finally:
        one.close()


def _standing(arbiter):
    """None while it is not told."""
    with suppress(ArbiterUnavailable):
        return arbiter.read()
    return None


def test_a_lost_answer_is_unknown_and_may_have_been_done():
    """In memory, for the simulator: whoever asked reads before it concludes anything."""
    engine = InMemory()
    one = engine.make("a")
    one.begin(FIRST)
    engine.engine.mute.add("a")
    with pytest.raises(ArbiterUnavailable):
        one.campaign(1, "a", 1)
    engine.engine.mute.clear()

    assert one.read().leader == Leader("a", 1)
    assert not one.renew()
    engine.engine.unreachable.add("a")
    with pytest.raises(ArbiterUnavailable):
        one.read()


def test_what_is_not_installed_is_named(monkeypatch):
    """With the extra that brings it."""
    monkeypatch.setitem(sys.modules, "etcd3gw", None)
    with pytest.raises(ArbiterDriverMissing, match=r"hybrid-messaging\[etcd\]"):
        EtcdArbiter(["http://127.0.0.1:1"], "d", "n", LEASE_S).read()
