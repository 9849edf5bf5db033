"""The kit's states of a branch: the table, and the codes that come of it."""

import pytest

from hms.wire import xa_constants as xa
from hms.wire.xid import Xid
from tpmon.xa.branches import Event, State, next_state
from tpmon.xa.kit import DatabaseResource

XID = Xid(1, b"t", b"b")


class LostError(Exception):
    """The scripted database is gone."""


class Session:
    """A session of it."""

    is_open = True


class Scripted:
    """A driver that does what it is told and remembers it."""

    is_last_resource = False
    is_freed_by_prepare = True

    def __init__(self):
        self.said = []
        self.fails = {}
        self.vote = xa.XA_OK
        self.opened = 0

    def _do(self, what):
        self.said.append(what)
        if self.fails.get(what, 0):
            self.fails[what] -= 1
            raise LostError(what)

    def connect(self):
        self._do("connect")
        self.opened += 1
        return Session()

    def check(self, _):
        return ""

    def close(self, session):
        session.is_open = False

    def is_clean(self, session):
        return session.is_open

    def begin(self, *_):
        self._do("begin")

    def prepare(self, *_):
        self._do("prepare")
        return self.vote

    def commit_one_phase(self, *_):
        self._do("one phase")
        return xa.XA_OK

    def roll_back(self, *_):
        self._do("rollback")

    def commit_prepared(self, *_):
        self._do("commit prepared")

    def roll_back_prepared(self, *_):
        self._do("rollback prepared")

    def prepared(self, *_):
        return []

    def code_of(self, fault):
        return xa.XAER_RMFAIL if isinstance(fault, LostError) else None


@pytest.fixture
def driver():
    return Scripted()


@pytest.fixture
def rm(driver):
    return DatabaseResource("db", driver)


def test_nothing_leads_out_of_a_branch_that_is_gone():
    """A finished branch that came back would commit twice."""
    assert all(next_state(State.GONE, event) is None for event in Event)


def test_only_a_prepared_branch_commits_in_two_phases():
    """A commit without a promise is no two-phase commit."""
    may = [state for state in State if next_state(state, Event.COMMIT) is not None]

    assert may == [State.PREPARED]


def test_a_session_that_died_while_it_was_idle_is_replaced(rm, driver):
    """A database that was started anew must not cost the next transaction."""
    assert rm.xa_open() == xa.XA_OK
    driver.fails["begin"] = 1

    assert rm.xa_start(XID) == xa.XA_OK
    assert driver.opened == 2


def test_a_database_that_is_away_is_rmfail_and_leaves_no_branch(rm, driver):
    """The same xid can begin when it is back."""
    driver.fails["begin"] = 2

    assert rm.xa_start(XID) == xa.XAER_RMFAIL
    assert "begin" in rm.reason
    assert rm.xa_start(XID) == xa.XA_OK


def test_a_session_lost_before_prepare_rolls_back_without_an_error(rm, driver):
    """The database has done it already."""
    rm.xa_start(XID)
    rm.xa_end(XID)
    driver.fails["rollback"] = 1

    assert rm.xa_rollback(XID) == xa.XA_OK
    assert rm.xa_rollback(XID) == xa.XA_OK  # the driver's: a prepared one of another process


def test_a_reader_gives_its_session_back(rm, driver):
    """XA_RDONLY ends the branch there and then."""
    driver.vote = xa.XA_RDONLY
    rm.xa_start(XID)
    rm.xa_end(XID)

    assert rm.xa_prepare(XID) == xa.XA_RDONLY
    assert rm.xa_start(Xid(1, b"next")) == xa.XA_OK
    assert driver.opened == 1


def test_what_the_application_holds_ends_with_the_branch(rm):
    """The session may serve somebody else by then."""
    rm.xa_start(XID)
    held = rm.connection(XID)
    assert held.is_open
    rm.xa_end(XID)

    with pytest.raises(Exception, match="has ended"):
        _ = held.is_open


def test_a_fault_that_is_none_of_the_databases_is_not_swallowed(rm, driver):
    """A bug is not a code of X/Open."""
    rm.xa_start(XID)
    rm.xa_end(XID)
    driver.prepare = lambda *_: 1 / 0

    with pytest.raises(ZeroDivisionError):
        rm.xa_prepare(XID)
