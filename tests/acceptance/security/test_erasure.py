"""hms erase: what belongs to a person leaves every place where it waits, and each place is told."""

import json
import re

import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.boot.cli.erasing_segments import Segments
from hms.boot.security_file import load_security
from hms.history.seals import seal
from tests.support.files_with import files_with
from tests.support.login_times import ATTACKS_FULL
from tests.support.secured import PASSWORD, document, secured_node

MAY = [
    "produce queue:orders",
    "publish topic:news",
    "subscribe topic:news",
    "subscribe-durable topic:news",
    "schedule queue:orders",
    "produce queue:payments",
]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with secured_node(
        tmp_path_factory.mktemp("e"), document(u=MAY, v=MAY, w=MAY), own={"sender_identity": True}
    ) as made:
        yield made


@pytest.fixture
def node(running, monkeypatch):
    monkeypatch.setenv("HMS_CONFIG", str(running.config_file))
    return running


def fill(node, user):
    """Messages of persons in a queue and a durable subscription, and a schedule."""
    login = {"user": user, "password": PASSWORD, "client_id": "desk"}
    with hms.connect(node.address, **login) as connection, connection.session() as session:
        own = f"person LIKE '% {user}'"  # and nothing of what another test has sent
        session.subscriber("news", durable=f"daily-{user}", selector=own).close()
        out = session.producer(hms.Queue("orders"))
        for person in ("ann", "bob", "ann", "o'neil"):
            out.send(hms.Message(b"x", properties={"person": f"{person} {user}"}))
        published = hms.Message(b"y", properties={"person": f"ann {user}"})
        session.producer(hms.Topic("news")).send(published)
        out.schedule(f"beat-{user}", b"z", every_s=3600, replace=True)


def run(*words, code=0):
    done = CliRunner().invoke(main, [*words], prog_name="hms")
    assert done.exit_code == code, done.output
    return done.output


def erased(*words):
    rows = json.loads(run("erase", *words, "--reason", "letter 7", "--json"))
    return {row["place"]: (row["found"], row["erased"], row["pending"]) for row in rows}


def test_at_47_dry_run_run_and_a_second_run_that_finds_nothing(node, record_property):
    """Each place is named; no file of the node has what was erased, and all the rest is there."""
    fill(node, "u")
    run("message", "list", "queue:orders", "--selector", "person = 'ann u'")
    run("message", "expire", "queue:orders", "--selector", "person = 'ann u' AND 1 = 2", "--yes")
    places = ["queue:orders", "subscription:daily-u@news"]
    files = "segments of log and history"
    assert holding(b"ann u", node.store)
    assert erased("--property", "person=ann u", "--dry-run") == {
        places[0]: (2, 0, 0),
        places[1]: (1, 0, 0),
        files: (4, 0, 0),
    }
    assert erased("--property", "person=ann u", "--yes") == {
        places[0]: (2, 2, 0),
        places[1]: (1, 1, 0),
        files: (4, 4, 0),
    }
    assert holding(b"ann u", node.store) == []
    assert holding(b"bob u", node.store)

    assert erased("--property", "person=ann u", "--yes") == {}
    assert erased("--property", "person=o'neil u", "--dry-run") == {
        places[0]: (1, 0, 0),
        files: (1, 0, 0),
    }
    assert "records are whole" in run("audit", "verify")
    record_property("figures", {"test": "AT-47", "erased": 3, "second_run": 0})


def test_what_was_received_long_ago_is_erased_and_the_books_balance(node):
    """The history has it; a boot reads what is left, and what is in flight stays and is told."""
    login = {"user": "u", "password": PASSWORD}
    with hms.connect(node.address) as connection, connection.session(ack=hms.AckMode.CLIENT) as own:
        with hms.connect(node.address, **login) as sending, sending.session() as session:
            out = session.producer(hms.Queue("payments"))
            for person in ("evelyn", "evelyn", "bob"):
                out.send(hms.Message(b"for " + person.encode(), properties={"person": person}))
        consumer = own.consumer(hms.Queue("payments"))
        consumer.receive(timeout_s=60).ack()
        held = consumer.receive(timeout_s=60)
        rows = erased("--property", "person=evelyn", "--yes")
        assert rows["queue:payments"] == (1, 0, 1)
        found, gone, pending = rows["segments of log and history"]
        assert found == gone + pending == 2
        held.ack()
    assert erased("--property", "person=evelyn", "--yes")["segments of log and history"][2] == 0
    assert holding(b"evelyn", node.store) == []

    node.kill()
    assert "is GOOD" in run("store", "verify")
    node.boot()
    with hms.connect(node.address) as connection, connection.session() as session:
        left = session.consumer(hms.Queue("payments")).receive(timeout_s=60)
        assert (left.body, left.properties["person"]) == (b"for bob", "bob")
    assert "records are whole" in run("audit", "verify")


def test_a_store_on_sqlite_is_erased_from(tmp_path, monkeypatch):
    """Tables, history, -wal and the audit; while the node works, and goes on."""
    own = {"sender_identity": True, "database": f"sqlite:{tmp_path}/store.db"}
    with secured_node(tmp_path, document(u=MAY), own=own) as made:
        monkeypatch.setenv("HMS_CONFIG", str(made.config_file))
        fill(made, "u")
        with hms.connect(made.address) as connection, connection.session() as session:
            chosen = session.consumer(hms.Queue("orders"), selector="person = 'ann u'")
            assert chosen.receive(timeout_s=60).body == b"x"
        files = [tmp_path, made.store]
        run("message", "list", "queue:orders", "--selector", "person = 'ann u'")
        run(
            "message", "expire", "queue:orders", "--selector", "person = 'ann u' AND 1 = 2", "--yes"
        )
        assert holding(b"ann u", *files)
        tables = "tables of the database"
        assert erased("--property", "person=ann u", "--dry-run")[tables] == (4, 0, 0)
        rows = erased("--property", "person=ann u", "--yes")
        assert rows["queue:orders"] == (1, 1, 0)
        assert rows[tables] == (4, 4, 0)
        assert holding(b"ann u", *files) == []
        assert holding(b"bob u", *files)
        assert erased("--property", "person=ann u", "--yes") == {}
        assert erased("--user", "u", "--yes")[tables][2] == 0
        assert holding(b"o'neil u", *files) == []
        made.kill()
        made.boot()
        assert "records are whole" in run("audit", "verify")
        with hms.connect(made.address) as connection:
            assert connection.administer("queue.show", {"name": "orders"})["waiting"] == 0


def test_what_still_waits_in_a_pinned_segment_is_spared(node):
    """It is mostly live, so it stays where it is, and a boot reads messages out of it."""
    bodies = [bytes([number]) * 900_000 for number in range(4)]
    login = {"user": "u", "password": PASSWORD}
    with hms.connect(node.address, **login) as sending, sending.session() as session:
        out = session.producer(hms.Queue("payments"))
        for body in bodies:
            out.send(hms.Message(body, properties={"person": "roberta"}))
            out.send(hms.Message(b"of winifred", properties={"person": "winifred"}))
    rows = erased("--property", "person=winifred", "--yes")
    assert rows["queue:payments"] == (4, 4, 0)
    assert rows["segments of log and history"] == (4, 4, 0)
    assert list(node.store.rglob("*.pinned"))
    assert holding(b"winifred", node.store) == []

    node.kill()
    assert "is GOOD" in run("store", "verify")
    node.boot()
    with hms.connect(node.address) as connection, connection.session() as session:
        consumer = session.consumer(hms.Queue("payments"), selector="person = 'roberta'")
        assert [consumer.receive(timeout_s=60).body for _ in bodies] == bodies


def test_a_schedule_is_erased_by_what_its_message_says(node):
    """It ends, and neither the log nor a later segment has its message; others go on."""
    login = {"user": "u", "password": PASSWORD}
    with hms.connect(node.address, **login) as connection, connection.session() as session:
        out = session.producer(hms.Queue("orders"))
        for person in ("theodora", "bob"):
            told = hms.Message(b"to " + person.encode(), properties={"person": person})
            out.schedule(f"letter to {person[0]}", told, every_s=3600)
    place = "schedule:letter to t"
    assert erased("--property", "person=theodora", "--dry-run")[place] == (1, 0, 0)
    rows = erased("--property", "person=theodora", "--yes")
    assert rows[place] == (1, 1, 0)
    assert holding(b"theodora", node.store) == []
    assert erased("--property", "person=theodora", "--yes") == {}
    with hms.connect(node.address) as connection:
        names = [row["name"] for row in connection.administer("schedule.list")]
        assert [name for name in names if name.startswith("letter")] == ["letter to b"]
        connection.cancel_schedule("letter to b")


def test_what_cannot_be_looked_at_is_told(node, tmp_path):
    """An archive that cannot be read, a damaged segment, files of a node that is elsewhere."""
    looked_for = ["--property", "person=nobody", "--dry-run"]
    assert erased(*looked_for) == {}
    (told,) = erased(*looked_for, "--connect", node.address)
    assert told.startswith("files of the node")

    mark = node.store / "archive.json"
    mark.write_text("{}")
    (told,) = erased(*looked_for)
    assert told.startswith("archive: HMS-")
    (tmp_path / "manifest").mkdir()
    (tmp_path / "manifest" / "000000000001.json").write_text("{}")
    mark.write_text(json.dumps({"where": str(tmp_path), "until_offset": 1, "until_segment": 1}))
    assert erased(*looked_for)[told := next(iter(erased(*looked_for)))] == (1, 0, 1)
    assert "its manifest is damaged" in told
    mark.unlink()

    with hms.connect(node.address) as connection:
        seal(connection)
    sealed = min(file for file in node.store.rglob("*.*") if file.stem.isdigit())
    data = bytearray(sealed.read_bytes())
    whole = bytes(data)
    data[200] ^= 1
    sealed.write_bytes(data)
    (told,) = erased(*looked_for)
    assert told.startswith(f"segment {int(sealed.stem)}: ")
    sealed.write_bytes(whole)


def holding(said, *folders):
    """The files that have these bytes."""
    return [file.name for file in files_with(lambda data: said in data, *folders)]


def test_what_a_user_sent_and_owns_is_erased_and_forgotten(node):
    """Its messages wherever they are, its subscription and its schedule; and then the account."""
    fill(node, "w")
    fill(node, "v")
    assert holding(b"bob w", node.store)
    found = erased("--user", "w", "--yes")
    held = found["subscription:daily-w@news"]
    assert held[0] == held[1] > 0
    assert found["schedule:beat-w"] == (1, 1, 0)
    assert found["queue:orders"][0] == found["queue:orders"][1] >= 4
    assert found["segments of log and history"][2] == 0
    assert holding(b"bob w", node.store) == holding(b"o'neil w", node.store) == []
    assert holding(b"bob v", node.store)
    assert erased("--user", "w", "--dry-run") == erased("--user", "w", "--yes") == {}

    assert "ended subscription:daily-w" in run("user", "delete", "w", "--forget", "--yes")
    assert "w" not in load_security(node.security).user
    with hms.connect(node.address) as connection:
        owners = [row["owner"] for row in connection.administer("subscription.list")]
    assert "w" not in owners


@pytest.mark.parametrize(
    "words", [[], ["--selector", ""], ["--user", "u", "--selector", "a = 1"], ["--property", "x"]]
)
def test_what_is_to_be_erased_has_to_be_said(words):
    """And nothing is changed otherwise."""
    assert CliRunner().invoke(main, ["erase", *words, "--yes"], prog_name="hms").exit_code


def test_the_audit_has_why_and_what_came_of_it(node):
    """Before anything is done, and with the counts at the end; neither names the person."""
    fill(node, "v")
    asked = ("erase", "--property", "person=bob v", "--yes")
    assert "--reason" in run(*asked, code=2)
    assert "--reason" in run(*asked, "--reason", "  ", code=2)

    number = int(re.search(r"Record (\d+)", run(*asked, "--reason", "letter 7"))[1])

    rows = [json.loads(line) for line in run("audit", "export").splitlines()][number - 1 :]
    begun, *steps, ended = [row for row in rows if row["user"] == "root"]
    assert (begun["command"], begun["result"]) == ("erasure.begin", "ok")
    told = json.loads(begun["arguments"])
    assert told.pop("audit")["connection"] > 0
    assert told == {"reason": "letter 7", "by": "property"}
    assert "message.delete" in {row["command"] for row in steps}
    counts = json.loads(ended["arguments"])
    assert (ended["command"], counts["begun"]) == ("erasure.end", number)
    assert counts["found"] == counts["erased"] > 0
    assert not [row for row in rows if "bob" in row["arguments"]]


class Died(BaseException):
    """The process ends here."""


def test_a_run_that_dies_is_made_good_by_the_next(node, monkeypatch):
    """Behind the copies that were written; HMS_ATTACKS=full: before each thing it asks the node."""
    login = {"user": "u", "password": PASSWORD}
    with hms.connect(node.address, **login) as sending, sending.session() as session:
        out = session.producer(hms.Queue("payments"))
        for _ in range(3):
            out.send(hms.Message(b"of xavier", properties={"person": "xavier"}))
    real, died = Segments._ask, 0

    def dying(self, **arguments):
        left[0] -= 1
        if left[0] < 0 or (not ATTACKS_FULL and "is_ready" in arguments and not died):
            raise Died
        return real(self, **arguments)

    monkeypatch.setattr(Segments, "_ask", dying)
    while True:
        left = [died if ATTACKS_FULL else 1000]
        try:
            rows = erased("--property", "person=xavier", "--yes")
        except Died:
            died += 1
        else:
            break
    assert died
    assert rows.get("segments of log and history", (0, 0, 0))[2] == 0
    assert holding(b"xavier", node.store) == []
    assert erased("--property", "person=xavier", "--yes") == {}
