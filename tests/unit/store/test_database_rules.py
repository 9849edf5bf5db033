"""Rules of the database store that need no database: folding, memory, owners, addresses."""

import subprocess
import sys
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hms.boot.config import load
from hms.boot.stores import open_store, table_prefix
from hms.errors.catalogue import (
    ConfigError,
    DatabaseDriverMissing,
    DatabaseUnavailable,
    NotSupported,
)
from hms.records import Placement, RecordType, Sent
from hms.store.database import DatabaseSettings, open_database, owner
from hms.store.database.deduplication_rows import Remembered
from hms.store.database.message_steps import Due, outcome
from hms.store.database.pending import PendingRows
from hms.store.database.rows import Meta, signed, unsigned
from hms.store.database.translation import Translation

NOTHING = Meta(0, 0, 0, 0, 0, 0, 0, "", 0)


# folding


def test_every_type_of_record_has_its_rows():
    """A type that was added and forgotten here would stop every node on a database. A node of a
    cluster keeps a log; boot refuses it a database. Its tables have no segments that could be
    pinned."""
    of_logs = {"OFFERED", "ARRIVED", "OFFER_ENDED", "PEERS", "ENTRIES", "PINNED"}
    wanted = {kind for kind in RecordType if kind.name not in of_logs}

    pending = PendingRows(OrderedDict(), 1)
    assert Translation(NOTHING, Remembered(1, 1), pending).types == wanted


def naive(steps, is_out):
    """The rules of recovery, one row, one step at a time."""
    deliveries = attempts = 0
    due = Due.KEPT
    for step in steps:
        if step == "D":
            if is_out:
                deliveries += 1
            else:
                is_out, due = True, Due.NEVER
        elif is_out:
            is_out = False
            if step in "fr":
                due = Due.TOLD
            if step in "Ff":
                deliveries, attempts = deliveries + 1, attempts + 1
    return is_out, deliveries, attempts, due


@given(st.text("DFRfr", max_size=12), st.booleans())
def test_a_run_of_steps_is_the_steps_one_by_one(steps, is_out):
    """However many there are in a commit, the row ends as it would have."""
    assert outcome(steps, is_out=is_out) == naive(steps, is_out)


@given(st.integers(0, (1 << 64) - 1))
def test_numbers_that_clients_choose_fit_a_database(number):
    """A client that calls itself 2^64 - 1 must not stop the node."""
    assert -(1 << 63) <= signed(number) < 1 << 63
    assert unsigned(signed(number)) == number


# memory


def taken(remembered, producer, first, lsn):
    """A batch of five messages."""
    places, pack = [Placement(1, b"")], memoryview(b"")
    head = (1, 1000 + first, 1000, 7, producer, first, 5)
    remembered.sent(Sent(*head, is_forwarded=False, placements=places, pack=pack), lsn)


def test_only_as_many_batches_are_kept_as_may_be_unconfirmed():
    """And the highest number of those forgotten, so that an old one is known to be in doubt."""
    remembered = Remembered(batches_max=2, entries_max=10)
    for lsn, first in enumerate((1, 6, 11, 16)):
        taken(remembered, 1, first, lsn)

    changes = remembered.take_changes()

    assert [row.first_sequence for row in changes.batches] == [11, 16]
    assert {row.forgotten for row in changes.batches} == {6}
    assert sorted(changes.batches_gone) == [(7, 1, 1), (7, 1, 6)]


def test_a_batch_that_comes_too_late_to_be_kept_still_says_that_it_is_forgotten():
    """Its number is what a repeat of it is judged by."""
    remembered = Remembered(batches_max=2, entries_max=10)
    taken(remembered, 1, 21, 1)
    taken(remembered, 1, 26, 2)
    remembered.take_changes()
    taken(remembered, 1, 6, 3)

    changes = remembered.take_changes()

    assert list(changes.batches) == []
    assert list(changes.forgotten) == [(7, 1, 6, 3)]


def test_the_producer_used_least_recently_is_forgotten():
    """Clients come and go for years; the table has a limit."""
    remembered = Remembered(batches_max=2, entries_max=2)
    for lsn, producer in enumerate((1, 2, 1, 3)):
        taken(remembered, producer, lsn * 5 + 1, lsn)

    changes = remembered.take_changes()

    assert sorted({row.producer for row in changes.batches}) == [1, 3]
    assert [key[1] for key in changes.batches_gone] == [2]


def test_a_producer_that_was_forgotten_is_not_known_from_its_first_number_on():
    """Its node knew it, as it was connected; after a boot a repeat of what was before was stored
    again."""
    remembered = Remembered(batches_max=2, entries_max=2)
    for lsn, producer in enumerate((1, 2, 3)):
        taken(remembered, producer, 1, lsn)
    taken(remembered, 1, 6, 3)

    changes = remembered.take_changes()

    of_it = {row.producer: (row.first_sequence, row.forgotten) for row in changes.batches}
    assert of_it == {3: (1, 0), 1: (6, 5)}


# owners


def test_the_own_process_is_alive():
    """Two stores in one process must not take one another for dead."""
    assert not owner.is_dead(owner.this_process().mark)


def test_a_process_that_has_ended_is_dead():
    """A node that crashed boots again without waiting for its lease."""
    code = "from hms.store.database.owner import this_process; print(this_process().mark)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert owner.is_dead(ended.stdout.strip())


def test_another_process_with_the_same_number_is_not_taken_for_it():
    """Numbers of processes come again."""
    world, pid, _ = owner.this_process().mark.rsplit("/", 2)

    assert owner.is_dead(f"{world}/{pid}/1")


@pytest.mark.parametrize("mark", ["", "elsewhere/1/2/3", "broken"])
def test_a_process_of_another_machine_is_never_called_dead(mark):
    """Nobody can see it from here; its lease decides."""
    assert not owner.is_dead(mark)


# configuration


def node_of(tmp_path, text):
    path = tmp_path / "hms.conf"
    path.write_text(f"[node.NODE-1]\n{text}\n")
    config = load(path)
    return config, config.node()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('database = "mysql://x/y"', "postgresql://USER@HOST/NAME"),
        ('database = "sqlite:"', "sqlite:PATH"),
        ("database = 5", "not 5"),
        ('database = "postgresql://u:topsecret@h/d"', "name it in database_password"),
        ('database = "postgresql://u@h/d?password=topsecret"', "name it in database_password"),
        ('database_password = "topsecret"', "env:NAME"),
        ('table_prefix = "Upper_"', "small letters"),
        ('table_prefix = "a; drop table x"', "small letters"),
        ('database = "sqlite:x.db"\nsegment_bytes = "1 GiB"', "512 MiB"),
        ('database = "sqlite:x.db"\nmax_log_bytes = "10 GiB"', "no log to be limited"),
    ],
)
def test_what_is_wrong_is_refused_and_no_secret_is_shown(tmp_path, text, said):
    """A report ends up in a ticket; a password must not."""
    with pytest.raises(ConfigError) as caught:
        node_of(tmp_path, text)

    assert said in str(caught.value)
    assert "topsecret" not in str(caught.value)


def test_tables_are_named_after_their_node(tmp_path):
    """Two nodes of one domain do not meet in one database by accident."""
    assert table_prefix(node_of(tmp_path, "")[1]) == "node_1_"
    assert table_prefix(node_of(tmp_path, 'table_prefix = "mine_"')[1]) == "mine_"


def test_a_store_lies_where_the_file_says(tmp_path):
    """A path is relative to hms.conf, wherever the node is started."""
    store = open_store(*node_of(tmp_path, 'database = "sqlite:var/x.db"'))
    store.close()

    assert (tmp_path / "var" / "x.db").exists()


@pytest.mark.parametrize("reference", ["env:HMS_NOT_SET_ANYWHERE", "file:not-there"])
def test_a_password_that_cannot_be_found_is_named(tmp_path, reference):
    """Not a login that fails without a reason."""
    text = f'database = "postgresql://u@127.0.0.1:1/d"\ndatabase_password = "{reference}"'

    with pytest.raises(DatabaseUnavailable, match=reference.partition(":")[2]):
        open_store(*node_of(tmp_path, text))


def test_the_password_of_a_file_is_used_without_its_line_end(tmp_path, monkeypatch):
    """Editors end a file with a new line."""
    given = []
    monkeypatch.setattr(
        "hms.boot.stores.open_database", lambda *_, **options: given.append(options)
    )
    (tmp_path / "secret").write_text("s3cret\n")

    open_store(
        *node_of(tmp_path, 'database = "postgresql://u@h/d"\ndatabase_password = "file:secret"')
    )

    assert given[0]["password"] == "s3cret"


def test_a_missing_driver_says_what_to_install(monkeypatch):
    """Psycopg is an extra that not everybody has."""
    monkeypatch.setitem(sys.modules, "hms.store.database.postgresql", None)

    with pytest.raises(DatabaseDriverMissing, match=r"hybrid-messaging\[sql\]"):
        open_database(
            "postgresql://h/d", table_prefix="x_", node_uid=1, settings=DatabaseSettings()
        )


def test_a_node_on_sqlite_loads_no_psycopg(project_root):
    """Who has no PostgreSQL needs nothing of it."""
    code = "import hms.boot.stores, sys; sys.exit('psycopg' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], cwd=project_root, timeout=250, check=False)

    assert ended.returncode == 0


def test_the_history_of_a_database_is_refused_with_the_way_to_read_it(tmp_path):
    """F-I4: Spark reads segments; what stands in a table is read with SQL in this version."""
    from hms.boot.cli.target import address_and_store

    config, _ = node_of(tmp_path, 'database = "sqlite:x.db"')

    with pytest.raises(NotSupported, match="table that ends in log"):
        address_and_store(config.path)
