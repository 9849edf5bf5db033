"""hms message export of a moment of the past, in packs, and import of what was cut off."""

import json
import random
import time
import zlib
from hashlib import sha256

import pytest

import hms
from hms.boot.cli.message_files import FRAME
from hms.boot.cli.message_reading import read_file
from hms.client.browse_pages import place_pages
from hms.history.archive_read import end_offset
from tests.support.waiting import wait_until

CONFIG = {
    "hms": {
        "queue": {"orders": {"redelivery_limit": 1}, "late": {}, "copy": {}},
        "topic": {"news": {}},
    }
}
WAIT_S = 60


@pytest.fixture
def node(emptied):
    """One for all tests."""
    return emptied


@pytest.fixture
def export(node, command, tmp_path):
    """Writes a file, and reads its messages."""

    def run(place, *words, code=0):
        file = tmp_path / "file"
        past = ("--path", str(node.store)) if "--at" in words else ()
        said = command(
            *("message", "export", place, "--to", str(file), "--replace", *past, *words), code=code
        )
        if code:
            return said
        return [json.loads(line) for line in file.read_bytes().splitlines()[1:-1]]

    return run


def bodies(lines):
    return [line["text"] for line in lines]


def send(node, *texts, to="orders", **options):
    with hms.connect(node.address) as connection, connection.session() as session:
        for text in texts:
            session.producer(to, **options).send(hms.Message.text(text, {"N": len(text)}))


def newest(node):
    """The LSN of the last record."""
    return end_offset(str(node.store)) - 1


def waiting(node, queue):
    """What waits in a queue now, with ids."""
    with hms.connect(node.address) as connection:
        found, position = connection.run(place_pages(connection.requests, f"queue:{queue}", "", 0))
        assert position == 0
    return {message.message_id: message.body for message in found}


def test_a_past_moment_is_what_waited_then(node, export):
    """Whatever became of it: acknowledged, moved, altered, deleted, dead, expired, sent later."""
    moments = []

    def mark():
        with hms.connect(node.address) as connection:
            held = connection.admin.messages("queue:orders")
            moments.append((newest(node), waiting(node, "orders"), waiting(node, "late")))
            return held

    send(node, *[f"{n:02d}" for n in range(12)])
    mark()
    with hms.connect(node.address) as connection:
        place = connection.admin.messages("queue:orders")
        place.where(limit=2).move(to="late")
        mark()
        place.where(limit=1).delete()
        place.where(limit=1).alter(priority=9)
        place.where(limit=1).expire()
        mark()
        with connection.session() as session:
            message = session.consumer("orders", prefetch=1).receive(WAIT_S)
            assert message is not None
        with connection.session(ack=hms.AckMode.CLIENT) as session:
            session.consumer("orders").receive(WAIT_S).ack()
        mark()
        done = connection.admin.messages("queue:late").everything().move(to="orders")
        assert done.count == 2
    send(node, "later")
    mark()
    node.kill()
    node.boot()
    mark()

    for lsn, orders, late in moments:
        for queue, held in (("orders", orders), ("late", late)):
            lines = export(f"queue:{queue}", "--at", str(lsn))
            assert {one["id"]: one["text"] for one in lines} == held, (lsn, queue)
    assert bodies(export("queue:orders", "--at", str(moments[0][0]), "--selector", "N = 9")) == []
    node.stop()  # the node need not run
    assert len(export("queue:orders", "--at", str(moments[0][0]))) == 12


def test_a_past_moment_by_its_time(node, export):
    """Of the day before yesterday nothing is known, and tomorrow nobody knows."""
    send(node, "first")
    (line,) = export("queue:orders")
    wait_until(lambda: time.time() * 1000 > line["time_ms"] + 5, timeout_s=WAIT_S)
    send(node, "second")
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(line["time_ms"] / 1000))
    at = f"{at}.{line['time_ms'] % 1000:03d}"

    assert bodies(export("queue:orders", "--at", at)) == ["first"]
    assert bodies(export("queue:orders", "--at", "2999-01-01")) == ["first", "second"]
    for wrong, said in (
        ("2001-01-01T00:00", "begins later"),
        ("0", "is not in the history"),
        ("999999999", "is not in the history"),
        ("yesterday", "neither an LSN nor a time"),
    ):
        assert said in export("queue:orders", "--at", wrong, code=1)
    assert "the past is not changed" in export("queue:orders", "--at", "1", "--remove", code=2)
    assert "retained" in export("retained:#", "--at", str(newest(node)), code=1)
    assert "neither queue:NAME" in export("orders", "--at", str(newest(node)), code=1)


def test_the_past_of_a_subscription(node, export):
    """What it took of its topics, and not what others took."""
    with hms.connect(node.address, client_id="c") as connection, connection.session() as session:
        for name, selector in (("all", None), ("some", "N = 3")):
            session.subscriber("news/#", durable=name, selector=selector).close()
        producer = session.producer(session.topic("news/a"))
        producer.send(hms.Message.text("one", {"N": 3}))
        producer.send(hms.Message.text("four", {"N": 4}))
    at = newest(node)
    with hms.connect(node.address, client_id="c") as connection, connection.session() as session:
        session.subscriber("news/#", durable="all").receive(WAIT_S)

    assert bodies(export("subscription:all@news/#", "--at", str(at))) == ["one", "four"]
    assert bodies(export("subscription:some@news/#", "--at", str(at))) == ["one"]


def test_the_past_of_a_subscription_whose_name_has_an_at_sign(node, export):
    """The file was whole, and empty: what stands behind the sign was taken for a topic."""
    with hms.connect(node.address) as connection, connection.session() as session:
        for name in ("me@home", "me"):
            session.subscriber("news", durable=name).close()
        send(node, "one", to=hms.Topic("news"))
        session.unsubscribe("news", "me")
        send(node, "two", to=hms.Topic("news"))
        at = "--at", str(newest(node))
        for place in ("me@home", "me@home@news"):
            assert bodies(export(f"subscription:{place}", *at)) == ["one", "two"]
        assert bodies(export("subscription:me@news", *at)) == []
        session.unsubscribe("news", "me@home")


def test_a_history_whose_beginning_is_gone_is_refused(node, export, monkeypatch):
    """A message that came before would be missing, silently."""
    send(node, "x")
    monkeypatch.setattr("hms.history.past_messages.first_offset", lambda _: 7)
    assert "give an archive" in export("queue:orders", "--at", str(newest(node)), code=1)


def test_packs_say_the_same_as_lines(node, command, tmp_path):
    """Exported in both, imported from both: each field alike."""
    values = {"N": 1, "Half": 0.5, "Raw": b"\0\xff", "Text": "ä", "Long": 1 << 40}
    content = tmp_path / "content"
    content.write_bytes(b"x" * 70_000)
    with hms.connect(node.address) as connection, connection.session() as session:
        producer = session.producer("orders", priority=7)
        for n in range(1200):
            producer.send(hms.Message.text(f"{n}", values, type="t", correlation_id="c"))
        producer.send(hms.Message.map({"cups": 2}))
        producer.send(hms.Message(None))
        producer.send(hms.Message.file(content))
        producer.send(b"later", delay_s=3600)
        session.producer("orders", compress="zlib").send(b"long " * 5000)
    files = {kind: tmp_path / kind for kind in ("jsonl", "pack")}
    for kind, file in files.items():
        said = command("message", "export", "queue:orders", "--to", str(file), "--format", kind)
        assert (said["exported"], said["files"]) == (1205, 1)
        into = {"jsonl": "late", "pack": "copy"}[kind]
        assert command("message", "import", str(file), "--into", into)["imported"] == 1205
        assert command("message", "import", str(file), "--into", into)["imported"] == 0
    found = {}
    for queue in ("late", "copy"):
        again = tmp_path / queue
        command("message", "export", f"queue:{queue}", "--to", str(again))
        lines = [json.loads(line) for line in again.read_bytes().splitlines()[1:-1]]
        for line in lines:
            del line["id"], line["time_ms"]
        found[queue] = lines

    assert found["late"] == found["copy"]
    assert len(found["late"]) == 1205
    assert files["pack"].stat().st_mode & 0o777 == 0o600


def test_a_pack_file_that_is_not_whole_is_not_imported(node, command, tmp_path):
    """Cut at any place, a bit turned anywhere, lengths that lie, an unknown format."""
    send(node, *[f"{n}" for n in range(30)])
    file, broken = tmp_path / "file", tmp_path / "broken"
    command("message", "export", "queue:orders", "--to", str(file), "--format", "pack")
    data, rng = file.read_bytes(), random.Random(5)
    begin = data.index(b"\n") + 1
    words = ("message", "import", str(broken), "--into", "late")
    cuts = [len(data) - 2, begin, begin + 5, begin + 40, *rng.sample(range(len(data)), 6)]
    broken_ones = [data[:at] for at in cuts]
    for at in [begin, begin + 4, begin + 8, *rng.sample(range(begin, len(data) - 1), 8)]:
        turned = bytearray(data)
        turned[at] ^= 1 << rng.randrange(8)
        broken_ones.append(bytes(turned))
    broken_ones.append(data[:begin] + FRAME.pack(1 << 31, 1 << 31, 0) + data[begin:])
    broken_ones.append(data[:begin] + FRAME.pack(1, 40, zlib.crc32(b"x" * 40)) + b"x" * 40)
    broken_ones.append(data.replace(b"hms-message-packs", b"hms-message-pucks", 1))
    broken_ones.append(data.replace(b'"version": 1', b'"version": 2', 1))
    broken_ones.append(data + b"x")
    for one in broken_ones:
        broken.write_bytes(one)
        assert "nothing was imported" in command(*words, code=1)
    assert waiting(node, "late") == {}


@pytest.mark.parametrize("kind", ["jsonl", "pack"])
def test_what_is_whole_of_a_file_that_was_cut_is_imported_when_it_is_asked_for(
    node, command, tmp_path, kind
):
    """--partial: an export that died, a copy that stopped; said, and never twice."""
    send(node, *[f"{n}" for n in range(1100)])
    file = tmp_path / "file"
    command("message", "export", "queue:orders", "--to", str(file), "--format", kind)
    data = file.read_bytes()
    file.write_bytes(data[: len(data) * 3 // 4])
    words = ("message", "import", str(file), "--into", "late")

    assert "truncated" in command(*words, code=1)
    said = command(*words, "--partial")
    assert (said["is_truncated"], said["in_file"] == said["imported"]) == (True, True)
    assert {"jsonl": 700, "pack": 500}[kind] <= said["imported"] < 1100
    assert command(*words, "--partial")["imported"] == 0
    first = data[: data.index(b"\n") + 1]
    file.write_bytes(first)
    assert "no message of it is whole" in command(*words, "--partial", code=1)
    lines = data.splitlines(keepends=True)
    if kind == "jsonl":  # a line that is whole and wrong is a fault, however the file ends
        file.write_bytes(b"".join([*lines[:5], b'{"id": "x"}\n', *lines[5:9]]))
        assert "line 6" in command(*words, "--partial", code=1)
    whole = sha256(b"".join(lines[:-1])).hexdigest()
    assert kind == "pack" or json.loads(lines[-1])["sha256"] == whole


def test_a_file_that_is_changed_between_check_and_import_stops_it(node, command, tmp_path):
    """It is read twice, so that it never lies in memory."""
    send(node, *[f"{n}" for n in range(3)])
    file = tmp_path / "file"
    command("message", "export", "queue:orders", "--to", str(file))
    found = read_file(file)
    file.write_bytes(file.read_bytes().replace(b'"text":"1"', b'"text":"2"'))

    with pytest.raises(Exception, match="was changed"):
        list(found.lines(0))
