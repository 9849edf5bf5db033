"""Leases and epochs: who may write, and who has to stop (F-I3)."""

import pytest

from hms.errors.catalogue import StoreFenced, StoreLocked
from hms.store.database import owner
from tests.support.store_place import SHORT, append, batch, take_over
from tests.support.waiting import wait_until

TABLES = ("message", "subscription_message", "log")


def test_a_live_lease_is_refused_with_its_owner_and_its_end(tables):
    """Who is refused must know whom to ask and how long it takes."""
    first, _ = tables.started()

    with pytest.raises(StoreLocked, match=r"lease ends in \d+ s"):
        tables.open()

    first.close()


def test_a_node_that_was_silent_past_its_lease_writes_nothing_once_another_came(tables):
    """F-I3: a paused node that wakes up must not mix its messages into what is another's now."""
    old, _ = tables.started(SHORT)
    append(old, batch(0, 5, b"x"))
    old.commit()
    new = take_over(tables)
    before = [tables.count(table) for table in TABLES]
    append(old, batch(5, 5, b"stale"))

    with pytest.raises(StoreFenced, match="epoch is 2, ours was 1"):
        old.commit()

    assert [tables.count(table) for table in TABLES] == before
    with pytest.raises(StoreFenced):
        append(old, batch(10, 1, b"stale"))
    assert old.sends_refused() is None  # else its clients were told that their sends failed
    old.close()
    append(new, batch(5, 5, b"x"))
    new.commit()
    new.close()
    assert tables.numbers() == list(range(10))


def test_an_idle_node_notices_at_its_next_renewal_that_it_lost_the_store(tables):
    """It would go on delivering what is another's otherwise."""
    old, _ = tables.started(SHORT)
    new = take_over(tables)

    def is_maintained():
        if old.needs_maintenance:
            old.maintain()

    with pytest.raises(StoreFenced):
        wait_until(is_maintained)

    assert not old.needs_maintenance
    old.close()
    new.maintain()
    new.close()


def test_a_lease_that_is_renewed_outlives_its_length(tables):
    """A node that has nothing to write keeps its store all the same."""
    first, _ = tables.started(SHORT)
    end_ms = lease_until_ms(tables)

    def is_renewed():
        if first.needs_maintenance:
            first.maintain()
        return lease_until_ms(tables) > end_ms + 1000 * SHORT.lease_s

    wait_until(is_renewed)
    first.close()


def lease_until_ms(tables):
    """When the lease ends, by the server's clock."""
    ((found,),) = tables.ask("SELECT lease_until_ms FROM {p}meta")
    return found


def test_a_node_stopped_in_the_midst_of_a_transaction_does_not_keep_the_store(tables):
    """Its session holds the row of meta; who takes over ends that session."""
    old, _ = tables.started(SHORT)
    old._backend._sessions._writer.execute("BEGIN")
    old._backend._sessions._writer.execute(f"UPDATE {tables.prefix}meta SET now_ms = 5")

    new = take_over(tables)

    append(old, batch(0, 1, b"stale"))
    with pytest.raises(StoreFenced):
        old.commit()
    old.close()
    new.close()


def test_the_lease_of_a_process_that_is_gone_is_not_waited_for(tables, monkeypatch):
    """A node that crashed boots again at once."""
    crashed, _ = tables.started()
    world = owner._world()
    tables.ask(f"UPDATE {{p}}meta SET owner_mark = '{world}/4194999/17'")

    second, _ = tables.started()

    second.close()
    crashed.close()


def test_a_lease_of_another_machine_is_waited_for(tables):
    """Nobody can tell from here whether a process elsewhere lives."""
    first, _ = tables.started()
    tables.ask("UPDATE {p}meta SET owner_mark = 'elsewhere/1/4194999/17'")

    with pytest.raises(StoreLocked):
        tables.open()
    first.close()
