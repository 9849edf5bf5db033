"""hms message and connection.admin against a real node, beside consumers, and over kills.

A long form moves as many messages, and kills the node and an import as often, as the environment
says:

    HMS_MANAGED=100000 HMS_KILLS=50 HMS_IMPORTS_KILLED=20 \
        scripts/test tests/acceptance/operations/test_messages.py
"""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import pytest
from click.testing import CliRunner

import hms
from field_buffer.types import Int, Short
from hms import aio
from hms.boot.cli import main
from hms.boot.cli.message_files import Line, write_file
from hms.client.message_admin import Messages
from hms.history.resend import Resender
from hms.wire.packed_messages import KIND_FILE, pack_messages
from tests.support.waiting import wait_until

CONFIG = {"hms": {"queue": {"orders": {}, "late": {}, "done": {}}, "topic": {"news": {}}}}
MANAGED = int(os.environ.get("HMS_MANAGED", "3000"))
KILLS = int(os.environ.get("HMS_KILLS", "2"))
IMPORTS_KILLED = int(os.environ.get("HMS_IMPORTS_KILLED", "1"))
WAIT_S = 60


@pytest.fixture
def node(emptied):
    """One for all tests."""
    return emptied


def fill(node, count, queue="orders"):
    with hms.connect(node.address) as connection, connection.session() as session:
        producer = session.producer(queue)
        messages = (
            hms.Message(b"%d" % n, {"N": n}, type="even" if n % 2 == 0 else "odd")
            for n in range(count)
        )
        return [receipt.message_id for receipt in producer.send_many(messages)]


def held(node, *queues):
    """How often each body waits, over all of the queues."""
    found = Counter()
    with hms.connect(node.address) as connection, connection.session() as session:
        for queue in queues:
            with session.browser(queue, oldest_first=True) as browser:
                found.update(int(message.body) for message in browser)
    return found


def await_settled(node, *queues):
    """Until what consumers had that are gone is back: a connection waits 5 s at most when it
    closes."""
    with hms.connect(node.address) as connection:

        def is_so():
            shown = [connection.administer("queue.show", {"name": name}) for name in queues]
            return not any(one["in_flight"] for one in shown)

        wait_until(is_so, WAIT_S)


def test_an_operator_lists_views_moves_copies_alters_and_deletes_messages(node, command):
    """As one does at night: look, count, do."""
    ids = fill(node, 10)

    rows = command("message", "list", "queue:orders", "--selector", "N > 7", "--properties", "N")
    assert [(row["id"], row["properties"]["N"]) for row in rows] == [(ids[8], 8), (ids[9], 9)]
    counted = command("message", "list", "queue:orders", "--type", "odd", "--count")
    assert counted["count"] == 5
    shown = command("message", "view", "queue:orders", ids[3])
    assert (shown["body"], shown["properties"], shown["type"]) == ("3", {"N": ["int", 3]}, "odd")

    odd = ["message", "move", "queue:orders", "--to", "late", "--type", "odd"]
    assert command(*odd, "--dry-run")["would_be_moved"] == 5
    assert command(*odd)["moved"] == 5
    assert command("message", "copy", "queue:late", "--to", "done", "--all")["copied"] == 5
    altered = command(
        "message", "alter", "queue:late", "--id", "-", "--priority", "9", stdin=ids[9]
    )
    assert altered["altered"] == 1
    assert command("message", "expire", "queue:late", "--id", ids[1])["expired"] == 1
    assert command("message", "delete", "queue:done", "--limit", "2", "--newest")["deleted"] == 2
    node.kill()
    node.boot()

    assert held(node, "orders") == Counter([0, 2, 4, 6, 8])
    assert held(node, "done") == Counter([1, 3, 5])
    with hms.connect(node.address) as connection, connection.session() as session:
        assert session.consumer("late").receive(WAIT_S).body == b"9"


def test_what_is_not_meant_so_is_refused_and_nothing_happens(node, command):
    """A slip costs nothing."""
    fill(node, 3)
    for words, code, said in (
        (["move", "queue:orders", "--all"], 2, "--to"),
        (["delete", "queue:orders"], 2, "--all"),
        (["move", "queue:orders", "--to", "nowhere", "--all"], 1, "HMS-4001"),
        (["list", "queue:orders", "--selector", "N >"], 1, "HMS-3002"),
        (["list", "orders"], 1, "queue:NAME"),
        (["list", "dlq"], 1, "hms dlq has the letters"),
        (["list", "queue:orders", "--from", "soon"], 2, "soon"),
        (["view", "queue:orders", "0" * 12], 1, "HMS-4046"),
        (["view", "queue:orders", "0" * 11], 1, "12 hexadecimal digits"),
        (["delete", "queue:orders", "--id", "0x0000000001"], 1, "12 hexadecimal digits"),
        (["move", "queue:orders", "--to", "orders", "--all"], 1, "in orders already"),
        (["export", "queue:orders", "--to", "f", "--id", "0" * 11], 1, "12 hexadecimal digits"),
    ):
        assert said in command("message", *words, code=code)
    assert held(node, "orders") == Counter(range(3))


def test_ids_that_are_not_there_are_counted_and_strict_tells_by_its_code(node, command):
    """A consumer has taken one between the list and the command."""
    ids = fill(node, 3)
    words = ("message", "delete", "queue:orders", "--id", ids[0], "--id", "0" * 12)
    dry = command(*words, "--dry-run")
    assert (dry["would_be_deleted"], dry["not_there"]) == (1, 1)
    done = command(*words)
    assert (done["deleted"], done["not_there"]) == (1, 1)
    assert '"not_there": 2' in command(*words, "--strict", code=1)
    assert "not_there" not in command("message", "delete", "queue:orders", "--all", "--strict")
    assert held(node, "orders") == Counter()


def test_a_command_waits_for_what_is_in_flight(node, command):
    """What comes back is moved, what is acknowledged is gone, and nothing else is touched."""
    ids = fill(node, 4)
    words = ("message", "move", "queue:orders", "--to", "late", "--all")
    with hms.connect(node.address) as connection, ThreadPoolExecutor() as pool:
        session = connection.session(ack=hms.AckMode.CLIENT)
        consumer = session.consumer("orders", prefetch=2)
        first, second = consumer.receive(WAIT_S), consumer.receive(WAIT_S)
        done = command(*words, "--wait", "0.3")
        assert done["skipped_in_flight"] >= 2
        assert done["moved"] + done["skipped_in_flight"] == 4
        waiting = pool.submit(command, *words, "--wait", str(WAIT_S))
        first.ack()
        fill(node, 1)
        consumer.close()
        session.recover()
        done = waiting.result(WAIT_S)
    assert second.message_id == ids[1]
    assert done["skipped_in_flight"] == 0
    assert ids[1] in {row["id"] for row in command("message", "list", "queue:late")}
    assert "atomic" in command(*words, "--wait", "1", "--atomic", code=2)


def test_an_export_has_what_was_chosen_and_nothing_else(node, command, tmp_path):
    """As every other command chooses; --remove removes that alone."""
    ids = fill(node, 6)
    file = tmp_path / "some.jsonl"

    def exported(*words):
        count = command("message", "export", "queue:orders", "--to", str(file), *words)["exported"]
        lines = file.read_bytes().splitlines()[1:-1]
        file.unlink()
        assert len(lines) == count
        return [json.loads(line)["text" if b'"text"' in line else "base64"] for line in lines]

    assert len(exported()) == 6
    assert len(exported("--id", ids[1], "--id", ids[4].upper(), "--id", "0" * 12)) == 2
    assert len(exported("--type", "odd", "--selector", "N > 2")) == 2
    assert len(exported("--type", "odd", "--limit", "1")) == 1
    assert len(exported("--from", "2001-01-01", "--until", "2002-01-01")) == 0
    assert len(exported("--older-than", "3600")) == 0
    assert len(exported("--min-count", "1")) == 0
    assert len(exported("--state", "delayed")) == 0
    assert len(exported("--state", "waiting", "--id", ids[5], "--remove")) == 1
    assert held(node, "orders") == Counter(range(5))
    for words in (("--state", "in_flight"), ("--at", "1", "--id", ids[0])):
        command("message", "export", "queue:orders", "--to", str(file), *words, code=2)
    assert not file.exists()


def test_a_list_says_that_there_may_be_more(node):
    """A thousand rows look like all of them."""
    fill(node, 1001)

    def listed(*words):
        line = ["message", "list", "queue:orders", *words, "--connect", node.address]
        return CliRunner().invoke(main, line).output

    assert "the first 1,000; --limit shows more" in listed()
    assert "the first" not in listed("--limit", "1000")
    assert "the first" not in listed("--selector", "N < 1000", "--newest", "--limit", "2000")


def test_a_command_that_is_interrupted_says_what_it_did(node):
    """Whole chunks; the same command goes on."""
    fill(node, 3000)
    said, move = [], Messages.move

    def interrupted(self, to, *, told, **more):
        def tell(outcome):
            told(outcome)
            said.append(outcome.count)
            raise KeyboardInterrupt

        return move(self, to, told=tell, **more)

    line = ["message", "move", "queue:orders", "--to", "late", "--all", "--connect", node.address]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Messages, "move", interrupted)
        done = CliRunner().invoke(main, line)
    assert (done.exit_code, f"queue:orders: {said[0]} moved before it ended" in done.output) == (
        1,
        True,
    )
    assert len(list(held(node, "late").elements())) == said[0] < 3000
    assert CliRunner().invoke(main, line).output == f"queue:orders: {3000 - said[0]} moved\n"


def test_a_target_that_is_full_or_paused_says_what_is_left(node, command):
    """After the last whole chunk; the error of a pause spoke of a send that waited ? s."""
    fill(node, 8)
    command("queue", "create", "small", "--set", "max_messages=3")
    move = ("message", "move", "queue:orders", "--to", "small")

    assert "queue:orders: 3 moved before it ended, 5 left" in command(*move, "--all", code=1)
    assert command("message", "delete", "queue:small", "--limit", "2")["deleted"] == 2
    assert "2 moved before it ended, 2 left" in command(*move, "--limit", "4", code=1)
    command("queue", "pause", "small", "--production")
    said = command(*move, "--all", code=1)
    assert "queue small is paused for sending" in said
    assert "?" not in said
    command("queue", "delete", "small", "--yes", "--force", "--discard")
    assert sum(held(node, "orders").values()) == 3


def test_a_property_is_no_header_field_whatever_its_sender_calls_it(node, tmp_path):
    """A property id stood in place of the id, in a list and in a view."""
    called = {"id": "mine", "state": "odd", "bytes": Short(7), "body": True}
    with hms.connect(node.address) as connection, connection.session() as session:
        id_ = session.producer("orders").send(b"x", called).message_id

    def said(*words):
        done = CliRunner().invoke(main, ["message", *words, "--connect", node.address])
        assert done.exit_code == 0, done.output
        return done.output

    raw = tmp_path / "raw"
    viewed = dict(
        line.split(maxsplit=1)
        for line in said("view", "queue:orders", id_, "--raw", str(raw)).splitlines()
    )
    assert (viewed["id"], viewed["state"], viewed["body"]) == (id_, "waiting", "x")
    names = ("id:string", "bytes:short", "body:bool")
    assert [viewed[name] for name in names] == ["mine", "7", "True"]
    assert (raw.read_bytes(), raw.stat().st_mode & 0o777) == (b"x", 0o600)
    head, row = said("list", "queue:orders", "--properties", "id").splitlines()
    assert head.split()[0] == "id"
    assert row.startswith(id_)
    assert row.endswith("mine")


def test_a_time_that_is_none_is_told_by_the_option_that_has_it(node, command):
    """The error of --from named --since, which there is not."""
    said = command("message", "list", "queue:orders", "--from", "tomorrow", code=2)
    assert "--from: 'tomorrow'" in said


def test_a_body_is_viewed_by_its_kind(node, command, tmp_path):
    """Values of a map, a compressed text inflated, and JSON indented."""
    send_each_kind(node)
    rows = command("message", "list", "queue:orders")
    bodies = [command("message", "view", "queue:orders", row["id"])["body"] for row in rows]
    assert bodies[1] == "text ä"
    assert bodies[2:5] == ['{"cups": 2, "raw": "78"}', '[1, "x", 2.5]', '{"deep": [1, null]}']
    assert bodies[6] == ("long " * 5000)[:4096]
    shown = command("message", "view", "queue:orders", rows[4]["id"], "--body", "json")
    assert json.loads(shown["body"]) == {"deep": [1, None]}
    words = ("message", "view", "queue:orders", rows[1]["id"])
    assert "no JSON" in command(*words, "--body", "json", code=1)
    assert "cannot be written" in command(*words, "--raw", str(tmp_path), code=1)


def test_python_does_the_same_and_waits_or_awaits(node):
    """One API for threads and for asyncio."""
    fill(node, 600)
    steps = []
    with hms.connect(node.address) as connection:
        messages = connection.admin.messages("queue:orders")

        def told(so_far):
            steps.append((so_far.count, messages.count().count))

        moved = messages.where("N < 500").move(to="late", told=told)
        assert (moved.count, len(steps) > 1) == (500, True)
        assert all(done + left == 600 for done, left in steps)
        assert messages.count().count == 100
        assert len(messages.where(limit=30).list(["N"])) == 30
        with pytest.raises(hms.HmsError):
            messages.delete()

    async def go_on():
        async with aio.connect(node.address) as connection:
            late = connection.admin.messages("queue:late")
            copied = await late.where(limit=300, newest_first=True).copy(to="done")
            row = (await connection.admin.messages("queue:done").where(limit=1).list())[0]
            shown = await connection.admin.view("queue:done", row["id"])
            left = []

            async def told(_so_far):
                left.append((await late.count()).count)

            deleted = await late.everything().delete(told=told)
            return copied.count, shown["body"], deleted.count, left[-1]

    assert asyncio.run(go_on()) == (300, b"499", 500, 0)


def test_a_command_that_pauses_leaves_nothing_to_consumers_meanwhile(node, command):
    """What a consumer has is not touched, and it gets more when the command is done."""
    fill(node, 10)
    with hms.connect(node.address) as connection, hms.connect(node.address) as operator:
        session = connection.session(ack=hms.AckMode.CLIENT)
        consumer = session.consumer("orders", prefetch=1)
        first = consumer.receive(WAIT_S)
        came = []

        def told(outcome):
            if outcome.count == 4:
                first.ack()  # there is room for more
            came.append(consumer.receive(timeout_s=0))

        found = operator.admin.messages("queue:orders").everything().paused().by(4)
        assert found.move(to="late", told=told).count == 9
        assert came == [None] * 3
        command("send", "orders", "10")
        assert consumer.receive(WAIT_S).body == b"10"
    assert (
        command("message", "move", "queue:late", "--to", "done", "--all", "--pause")["moved"] == 9
    )


def test_dead_letters_are_counted_and_go_back_without_a_program(node, command):
    """Three rejected ones: why and where from is shown, then they are sent back, then purged."""
    ids = fill(node, 3)

    def reject_all():
        with hms.connect(node.address) as connection:
            session = connection.session(ack=hms.AckMode.CLIENT)

            def refuse(_message):
                raise hms.Reject("no coffee left")

            session.consumer("orders").listen(refuse)
            letters = connection.admin.messages("queue:HMS.DLQ")
            wait_until(lambda: letters.count().count == len(ids), WAIT_S)

    reject_all()
    browsed = command("browse", "HMS.DLQ", "--count", "1")
    assert (browsed["$DeadReason"], browsed["$DeadOrigin"]) == ("REJECTED", "queue:orders")
    assert command("dlq", "count", "--by", "origin") == [{"origin": "queue:orders", "count": 3}]
    listed = command("dlq", "list", "--reason", "REJECTED", "--origin", "queue:orders")
    assert {row["id"] for row in listed} == {*ids}
    by_hour = command("dlq", "list", "--by", "hour")
    assert {row["hour"]: row["at"][:13] for row in by_hour} == {
        row["hour"]: row["hour"] for row in command("dlq", "count", "--by", "hour")
    }
    assert {row["id"] for row in by_hour} == {*ids}
    assert command("dlq", "show", ids[0])["attempts"] == 1
    assert "--all" in command("dlq", "return", code=2)
    assert command("dlq", "return", "--all", "--dry-run")["would_be_returned"] == 3
    assert command("dlq", "return", "--origin", "queue:orders")["returned"] == 3
    assert held(node, "orders") == Counter(range(3))
    reject_all()
    assert command("dlq", "return", "--all", "--max-returns", "1")["left"] == {
        "returned_too_often": 3
    }
    assert command("dlq", "purge", "--id", ids[0])["purged"] == 1
    assert command("dlq", "purge", "--all")["purged"] == 2
    assert command("dlq", "list") == []


def contents(node, queue):
    """Of each message in a queue all that an application can see of it."""
    with (
        hms.connect(node.address) as connection,
        connection.session() as session,
        session.browser(queue, oldest_first=True) as browser,
    ):
        return [
            (
                *(m.body, m.kind, m.type, m.correlation_id, str(m.reply_to), m.priority),
                *(dict(m.properties), {k: type(v) for k, v in m.properties.items()}),
            )
            for m in browser
        ]


def send_each_kind(node):
    values = {"N": 1, "Half": 0.5, "Raw": b"\0\xff", "Yes": True, "Text": "ä", "Long": 1 << 40}
    with hms.connect(node.address) as connection, connection.session() as session:
        producer = session.producer("orders", priority=7)
        header = {"type": "t", "correlation_id": "c", "reply_to": "queue:late"}
        for message in (
            hms.Message(b"\0bytes", values, **header),
            hms.Message.text("text ä", values),
            hms.Message.map({"cups": 2, "raw": b"x"}, {"Typed": Int(5)}),
            hms.Message.stream([1, "x", 2.5]),
            hms.Message.object({"deep": [1, None]}),
            hms.Message(None),
        ):
            producer.send(message)
        session.producer("orders", compress="zlib").send(b"long " * 5000)


def test_what_is_exported_is_imported_as_it_was_and_once(node, command, tmp_path):
    """Of each kind; a second import of the same file sends nothing, and a changed file is none."""
    send_each_kind(node)
    before, file = contents(node, "orders"), tmp_path / "orders.jsonl"

    exported = command("message", "export", "queue:orders", "--to", str(file), "--remove")
    assert (exported["exported"], exported["removed"]) == (7, 7)
    assert file.stat().st_mode & 0o777 == 0o600
    assert contents(node, "orders") == []
    node.kill()
    node.boot()
    assert command("message", "import", str(file), "--into", "orders", "--dry-run") == {
        "would_be_imported": 7,
        "in_file": 7,
        "run": f"import {exported['sha256'][:16]}",
    }
    assert command("message", "import", str(file), "--into", "orders")["imported"] == 7
    assert contents(node, "orders") == before
    assert command("message", "import", str(file), "--into", "orders")["imported"] == 0
    assert contents(node, "orders") == before
    again = command("message", "import", str(file), "--into", "late", "--run", "again")
    assert again["imported"] == 7


def test_an_import_that_was_cut_off_goes_on_and_doubles_nothing(node, command, tmp_path):
    """Its ledger is in the node, in the same transaction as the messages."""
    fill(node, 1200)
    file = tmp_path / "orders.jsonl"
    command("message", "export", "queue:orders", "--to", str(file))
    sent, send = [], Resender.send

    def cut(sender, chunk, entry):
        if len(sent) == 1:
            raise RuntimeError("the importer dies here")
        sent.append(chunk)
        send(sender, chunk, entry)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Resender, "send", cut)
        command("message", "import", str(file), "--into", "late", code=1)
    node.kill()
    node.boot()
    assert command("message", "import", str(file), "--into", "late")["imported"] == 700
    assert held(node, "late") == Counter(range(1200))


def with_ids(node, queue):
    """Id, time, header fields, properties and body of each message, in the order of the ids."""
    with (
        hms.connect(node.address) as connection,
        connection.session() as session,
        session.browser(queue, oldest_first=True) as browser,
    ):
        return sorted(map(whole, browser), key=lambda row: row[0])


def whole(message):
    """All that a message is, properties whatever their order."""
    row, _, body = message.encode()
    known = dict(message.properties)
    sent = (message.message_id, message.timestamp_ms, message.priority, message.persistent)
    return (*sent, message.type, message.correlation_id, repr(message.reply_to), known, row, body)


def test_an_import_that_keeps_ids_gives_each_message_its_own_back(node, command, tmp_path):
    """Behind a COLD boot, over kills at each chunk; what waits with such an id is replaced, what is
    in flight stays; another sender's message takes no id, and another store's file is refused."""
    send_each_kind(node)
    fill(node, count := 600 * (1 + IMPORTS_KILLED))
    file = tmp_path / "orders.jsonl"
    command("message", "export", "queue:orders", "--to", str(file))
    before = with_ids(node, "orders")
    words = ("message", "import", str(file), "--into", "orders", "--keep-ids")
    node.stop()
    node.boot(warm=False)
    assert with_ids(node, "orders") == []
    for _ in range(IMPORTS_KILLED):
        killed_import(node, words)
    command(*words)
    assert with_ids(node, "orders") == before
    assert command(*words)["imported"] == 0
    node.kill()
    node.boot()
    assert with_ids(node, "orders") == before
    forged(node, before[2][0])
    with hms.connect(node.address) as connection:
        session = connection.session(ack=hms.AckMode.CLIENT)
        flying = session.consumer("orders", prefetch=1).receive(WAIT_S)
        again = command(*words, "--run", "again")
        assert (again["imported"], again["left"]) == (count + 7, {"id_in_flight": 1})
        flying.ack()
    assert delayed(node) == 2
    assert with_ids(node, "orders") == [one for one in before if one[0] != flying.message_id]
    lines = file.read_bytes().replace(b'"store": "', b'"store": "0', 1).splitlines(keepends=True)
    whole = b"".join(lines[:-1])
    lines[-1] = (
        json.dumps({"count": count + 7, "sha256": sha256(whole).hexdigest()}).encode() + b"\n"
    )
    file.write_bytes(b"".join(lines))
    assert "new id" in command(*words, code=1)


def killed_import(node, words):
    """The importer and the node die in the middle of one, behind one chunk or in it."""
    line = [sys.executable, "-m", "hms.boot", *words, "--connect", node.address]
    import_ = subprocess.Popen(line)
    wait_until(lambda: import_.poll() is not None or delayed(node) or with_ids(node, "orders"), 60)
    assert import_.poll() in (None, 0)
    import_.kill()
    import_.wait()
    node.kill()
    node.boot()


def delayed(node):
    with hms.connect(node.address) as connection:
        return connection.administer("queue.show", {"name": "orders"})["delayed"]


def forged(node, message_id):
    """Another sender's message, which says that it is to take the id of one that waits."""
    pack = pack_messages([Line(message_id, 0, 0).packed(0, "guessed")])
    with hms.connect(node.address) as connection, connection.session() as session:
        producer = session.producer("orders")
        producer.settle(producer.submit_packs([(pack, 1)]))


def away(line, sha256):
    """A file message whose file stands elsewhere."""
    return changed(line, kind=KIND_FILE, file={"sha256": sha256, "bytes": 1, "name": "x"})


def changed(line, **fields):
    return json.dumps(json.loads(line) | fields).encode() + b"\n"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines[:-1], "truncated"),
        (lambda lines: lines[:2] + lines[3:], "messages, and says"),
        (lambda lines: [lines[0].replace(b'"version": 1', b'"version": 2'), *lines[1:]], "version"),
        (lambda lines: [lines[0], lines[1].replace(b"text", b"taxt"), *lines[2:]], "line 2"),
        (lambda lines: [lines[0], lines[1].replace(b"hello", b"hallo"), *lines[2:]], "altered"),
        (lambda lines: [lines[0], b"{}\n", *lines[2:]], "line 2"),
        (lambda _: [], "line"),
        (lambda lines: [*lines, b"{}\n"], "behind the trailer"),
        (lambda lines: [lines[0], b'{"id":' + b"[" * 100_000, *lines[1:]], "line 2"),
        (lambda lines: [b"[" * 100_000 + b"\n", *lines[1:]], "no export"),
        (lambda lines: [lines[0], lines[1].replace(b'"id":"', b'"id":"x'), *lines[2:]], "line 2"),
        (lambda lines: [lines[0], away(lines[1], "../../secret"), *lines[2:]], "line 2"),
        (lambda lines: [lines[0], away(lines[1], "0" * 64), *lines[2:]], "line 2: its file"),
        (lambda lines: [lines[0], b"\xff\xfe" + lines[1], *lines[2:]], "line 2"),
        (lambda lines: [lines[0], changed(lines[1], kind=90), *lines[2:]], "no kind"),
        (lambda lines: [lines[0], changed(lines[1], priority=10), *lines[2:]], "its priority"),
        (lambda lines: [lines[0], changed(lines[1], time_ms=-1), *lines[2:]], "its times"),
        (lambda lines: [lines[0], changed(lines[1], due_ms=1 << 60), *lines[2:]], "its times"),
        (lambda lines: [lines[0], changed(lines[1], id="0_0000000001"), *lines[2:]], "12 hexadec"),
        (lambda lines: [lines[0], changed(lines[1], id="-1"), *lines[2:]], "12 hexadecimal"),
        (lambda lines: [lines[0], changed(lines[1], id="f" * 20), *lines[2:]], "12 hexadecimal"),
        (
            lambda lines: [
                *(lines[0], changed(lines[1], properties={"A": [999, 1]})),
                *lines[2:],
            ],
            "line 2: there is no type 999 of a property",
        ),
        (
            lambda lines: [lines[0].replace(b'"version": 1', b'"version": "1"'), *lines[1:]],
            "it is of version '1'; this one reads 1",
        ),
    ],
)
def test_a_file_that_is_not_whole_is_not_imported(tmp_path, change, said):
    """Every fault names its line, and nothing of the file is sent."""
    file = tmp_path / "file"
    messages = [hms.Message.text("hello", {"N": n}) for n in range(3)]
    for number, message in enumerate(messages, 1):
        message.mark_sent(hms.Queue("orders"), number, 1000, is_persistent=True)
    write_file(file, {"place": "queue:orders"}, messages)
    file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))

    done = CliRunner().invoke(main, ["message", "import", str(file), "--into", "orders"])

    assert (done.exit_code, said in done.output) == (1, True), done.output


class Beside:
    """A producer and a consumer that work on while an operator does; they come back after kills."""

    def __init__(self, node):
        self.sent, self.seen, self.received = set(), set(), set()
        self._node, self._stop = node, threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._send, self._receive)]

    def _send(self):
        number = MANAGED
        with hms.connect(self._node.address, reconnect_interval_s=0.05) as connection:
            producer = connection.session().producer("orders")
            while not self._stop.is_set():
                number += 1
                try:
                    producer.send(b"%d" % number, {"N": number}, type="new")
                except hms.HmsError:
                    continue
                self.sent.add(number)

    def _receive(self):
        options = {"reconnect_interval_s": 0.05, "client_name": "beside"}
        with hms.connect(self._node.address, **options) as connection:
            session = connection.session(ack=hms.AckMode.CLIENT)
            consumer = session.consumer("orders", prefetch=20)
            while not self._stop.is_set():
                try:
                    message = consumer.receive(timeout_s=0.1)
                    if message is None:
                        continue
                    self.seen.add(int(message.body))
                    message.ack()
                except hms.HmsError:
                    continue
                self.received.add(int(message.body))

    def go_on(self):
        """Wait until both have done something more."""
        sent, received = len(self.sent) + 5, len(self.received) + 5
        wait_until(lambda: len(self.sent) >= sent and len(self.received) >= received, WAIT_S)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()


def test_each_message_is_in_one_place_whenever_the_node_is_killed(node, record_property):
    """P6: moved to and fro beside a producer and a consumer, and the node killed in between."""
    fill(node, MANAGED)
    queues, kills, moved = ("orders", "late", "done"), 0, 0
    with Beside(node) as beside:
        while kills < KILLS:
            source, target = queues[kills % 3], queues[(kills + 1) % 3]
            beside.go_on()
            is_killed = threading.Event()

            def kill(outcome, is_killed=is_killed):
                if outcome.count and not is_killed.is_set():
                    is_killed.set()
                    node.kill()

            try:
                with hms.connect(node.address, reconnect=False) as connection:
                    place = connection.admin.messages(f"queue:{source}").where(limit=2000)
                    moved += place.move(to=target, told=kill).count
            except hms.HmsError:
                pass
            if not is_killed.is_set():
                node.kill()
            kills += 1
            node.boot()
    await_settled(node, *queues)
    there = held(node, *queues)
    wanted = {*range(MANAGED), *beside.sent}
    record_property(
        "figures", {"managed": MANAGED, "kills": kills, "moved": moved, "beside": len(beside.sent)}
    )

    assert {n for n, count in there.items() if count > 1} == set()
    assert beside.received & {*there} == set()
    assert wanted - {*there} - beside.seen == set(), "lost"


def test_a_command_for_all_nodes_is_done_at_each_and_tells_of_each(tmp_path):
    """One that does not answer keeps nobody else from it, and the exit code says so."""
    file = tmp_path / "hms.conf"

    def run(*words, code=0):
        done = CliRunner().invoke(main, [*words, "--all-nodes", "--config", str(file)])
        assert done.exit_code == code, done.output
        return done.output.splitlines()

    def configure(*addresses):
        sections = [
            f'[node.N{n}]\nlisten = ["{address}"]\nstore = "store{n}"\n'
            f'[svrgroup.G{n}]\nNODENAME = "N{n}"\nSVGTYPE = "HMS"\nHMSINDEX = {n}\n'
            for n, address in enumerate(addresses, 1)
        ]
        file.write_text("\n".join([*sections, "[hms.queue.orders]", "[hms.queue.late]"]))

    with hms.testing.node(config=CONFIG) as one, hms.testing.node(config=CONFIG) as two:
        fill(one, 3)
        fill(two, 2)
        configure(one.address, two.address)
        place = "queue:orders"
        assert run("message", "list", place, "--count") == ["N1: 3", "N2: 2"]
        rows = json.loads("".join(run("message", "list", place, "--json")))
        assert [row["node"] for row in rows] == ["N1"] * 3 + ["N2"] * 2
        said = run("message", "move", place, "--to", "late", "--selector", "N = 0", "--json")
        moved = [json.loads(line) for line in said]
        assert [(row["node"], row["moved"]) for row in moved] == [("N1", 1), ("N2", 1)]
        assert held(one, "late") == held(two, "late") == {0: 1}
        two.stop()
        *others, last = run("message", "delete", place, "--all", code=1)
        assert others[0] == "N1: queue:orders: 2 deleted"
        assert last.startswith("N2: HMS-")
        assert held(one, "orders") == {}
        done = CliRunner().invoke(
            main, ["message", "list", place, "--all-nodes", "--connect", one.address]
        )
        assert (done.exit_code, "name none" in done.output) == (2, True)
