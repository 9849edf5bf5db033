"""The release before as a copy of the log beside this one: a rolling upgrade there and back, and a
copy that cannot read the log."""

import shutil
from contextlib import contextmanager

import pytest

from hms.errors.catalogue import StoreNotFinalized
from hms.history.archive_all import seal
from tests.acceptance.ha_rig import WAIT_S, Sender, bodies, connect
from tests.acceptance.pair_rig import arbiter, pair
from tests.support.release_before import release_before
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(400)
NODE = {"replica_timeout_s": 3}


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """The release before."""
    return release_before(tmp_path_factory.mktemp("before"))


@pytest.fixture
def two(tmp_path):
    with arbiter(tmp_path) as decided_by, pair(tmp_path, decided_by, 0, node=NODE) as made:
        yield made


@contextmanager
def sending(two):
    """Messages come all the time; each that was confirmed is there once, in order."""
    sender = Sender(two.machines)
    yield sender
    sender.wait_for(20)
    sender.end()
    assert bodies(*two.machines) == sender.confirmed


def upgrade(two, one, release=None):
    """A machine that follows gets another release; None: this one."""
    one.stop()
    wait_until(lambda: one.folder.name not in two.replication()["members"], 2 * WAIT_S)
    one._prefix = [] if release is None else release.prefix


def finalize(*nodes):
    """Raise the format: what was told, or its refusal; a copy that stands still just then cannot be
    asked, and is asked again."""

    def asked():
        with connect(*nodes) as operator:
            try:
                return operator.administer("store.finalize", {})
            except StoreNotFinalized as fault:
                if "cannot be asked" not in str(fault):
                    raise
        return None

    return wait_until(asked, WAIT_S)


def leads(two, name):
    """That machine does."""
    wait_until(lambda: two.replication()["replica"] == name, 2 * WAIT_S)


def test_copies_leave_the_release_before_one_by_one_under_load(before, two):
    """Standbys first. No format is raised that a copy cannot read."""
    for one in two.machines:
        one._prefix = before.prefix
        one.boot(standby=one is two.b)
    with sending(two) as sender:
        two.wait_for_both()
        sender.wait_for(20)
        upgrade(two, two.b)
        two.b.boot(standby=True)
        two.wait_for_both()
        two.a.stop()
        leads(two, "b")
        two.a.boot(standby=True)
        two.wait_for_both()
        sender.wait_for(20)
        with pytest.raises(StoreNotFinalized, match="a cannot read format 3"):
            finalize(two.b)
        upgrade(two, two.a)
        two.a.boot(standby=True)
        two.wait_for_both()
        assert finalize(two.b) == {"format_before": 2, "format": 3}
        sender.wait_for(20)
        two.wait_for_both()
        two.b.kill()
        sender.wait_for(20)


def test_a_copy_that_cannot_read_the_log_is_named_and_never_counts(before, two):
    """A machine goes back to the release before, once the format is raised, with its store and with
    an empty one: it gets all, and does not count, so it will not lead."""
    two.boot()
    one = two.follower
    with sending(two) as sender:
        sender.wait_for(20)
        finalize(*two.machines)
        seal(two.leader.address)  # the next segment has the new format
        sender.wait_for(20)
        two.wait_for_both()
        upgrade(two, one, before)
        for _ in range(2):
            seen = len(one.log) if one.log_file.exists() else 0
            one.boot(standby=True)
            sender.wait_for(20)
            wait_until(lambda: is_named(two, one.log[seen:]), 2 * WAIT_S)  # noqa: B023
            assert two.replication()["members"] == [two.leader.folder.name]
            if one.is_running:
                one.stop()
            shutil.rmtree(one.store)
        one._prefix = []
        one.boot(standby=True)
        two.wait_for_both()
        wait_until(lambda: "cannot read" not in alerts(two), 2 * WAIT_S)


def is_named(two, log):
    """By its own release, as soon as it reads the log, or by the primary."""
    return "HMS-5003" in log or "cannot read format 3" in alerts(two)


def alerts(two):
    """What an operator is told, and has not ended."""
    with connect(*two.machines) as operator:
        return str(operator.administer("alert.list", {})["active"])
