"""hms message export and import of what is no plain message of a queue.

A long form sends a file of as many bytes as the environment says:

    HMS_EXPORTED_FILE_BYTES=1073741824 scripts/test tests/acceptance/operations/test_exports.py
"""

import errno
import json
import os
import tracemalloc
from filecmp import cmp
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner

import hms
import hms.testing
from hms.boot.cli import main
from hms.boot.cli.message_files import FORMAT, FRAME, PACK_FORMAT, VERSION, files_of
from hms.client.browse_pages import place_pages
from hms.history.resend import Resender

CONFIG = {"hms": {"queue": {"orders": {}, "late": {}}, "topic": {"news": {}, "plans": {}}}}
FILE_BYTES = int(os.environ.get("HMS_EXPORTED_FILE_BYTES", "300000"))
PLACES = ("queue:orders", "subscription:reader@news/#", "retained:#")
LATER_S = 3600


def subscribe(node):
    """The durable subscription, without a consumer."""
    with hms.connect(node.address, client_id="c") as connection, connection.session() as session:
        session.subscriber("news/#", durable="reader").close()


def send_each(node, tmp_path):
    """A file, delayed messages, publications for a subscription and for those who come later."""
    content = tmp_path / "content"
    with content.open("wb") as out:
        for start in range(0, FILE_BYTES, 1 << 20):
            out.write(start.to_bytes(8, "big") * (min(1 << 20, FILE_BYTES - start) // 8))
    with hms.connect(node.address) as connection, connection.session() as session:
        producer = session.producer("orders")
        for url_only in (False, False, True):
            producer.send(hms.Message.file(content, {"N": 1}, url_only=url_only, type="file"))
        producer.send(hms.Message.text("later", {"Typed": 0.5}), delay_s=LATER_S, priority=8)
        producer.send(b"long " * 5000, compress="zlib", delay_s=LATER_S)
        producer.send(hms.Message.map({"cups": 2}), ttl_s=LATER_S)
        for topic in ("news/a", "news/b"):
            news = session.producer(session.topic(topic))
            news.send(hms.Message.text(f"of {topic}", {"N": 2}, correlation_id="c"))
            news.send(hms.Message.object({"deep": [topic]}), retain=True)
        news.send(hms.Message.stream([1, "x"]), delay_s=LATER_S)


def whole(connection, message):
    """All that a message is but its id, its times of sending and what the node calls its file."""
    row, _, body = message.encode()
    info, content = message.file_info, sha256(body).hexdigest()
    if info is not None:
        content = (info.name, info.size_bytes, info.sha256, bool(info.url))
    known = dict(message.properties)
    known.pop("$OriginalMessageID", None)
    sent = (message.priority, message.persistent, message.type, message.correlation_id)
    due = message.delivery_time_ms
    due = due if due != message.timestamp_ms else None
    return (*sent, row[-8:], message.reserved("$Topic"), due, str(known), content)


def contents(node, place):
    """By id, of all that a place has."""
    found, position = {}, 0
    with hms.connect(node.address) as connection:
        while position is not None:
            steps = place_pages(connection.requests, place, "", position)
            page, position = connection.run(steps)
            found.update((message.message_id, whole(connection, message)) for message in page)
            position = position or None
    return found


@pytest.mark.parametrize("keeps", [False, True])
def test_each_kind_comes_back_as_it_was(node, command, tmp_path, keeps):
    """Must-show 2: behind a COLD boot, into the same places, over an import that is cut off."""
    subscribe(node)
    send_each(node, tmp_path)
    before = {place: contents(node, place) for place in PLACES}
    assert [len(found) for found in before.values()] == [6, 5, 2]
    for number, place in enumerate(PLACES):
        said = command("message", "export", place, "--to", str(tmp_path / str(number)))
        assert said["exported"] == len(before[place])
    assert [one.stat().st_size for one in files_of(tmp_path / "0").iterdir()] == [FILE_BYTES]
    node.stop()
    node.boot(warm=False)
    subscribe(node)
    assert [contents(node, place) for place in PLACES] == [{}] * 3
    words = ("--keep-ids",) if keeps else ()

    def cut(sender, chunk, entry):
        send(sender, chunk, entry)
        raise RuntimeError("the importer dies here")

    send = Resender.send
    for number, place in enumerate(PLACES):
        line = ("message", "import", str(tmp_path / str(number)), "--into", place, *words)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Resender, "send", cut)
            command(*line, code=1)
        if not number:
            node.kill()
            node.boot()
        assert "left" not in command(*line)
        assert command(*line)["imported"] == 0
        after = contents(node, place)
        assert sorted(map(repr, after.values())) == sorted(map(repr, before[place].values()))
        assert (after.keys() == before[place].keys()) is keeps
    node.kill()
    node.boot()
    assert contents(node, "queue:HMS.REPLAY").keys() & before["queue:orders"].keys() == set()
    taken_back(node, tmp_path)


def taken_back(node, tmp_path):
    """Consumers get what was imported: the file, the publications, what is retained."""
    with hms.connect(node.address, client_id="c") as connection, connection.session() as session:
        message = session.consumer("orders").receive(60)
        message.save(tmp_path / "saved")
        assert cmp(tmp_path / "saved", tmp_path / "content", shallow=False)
        reader = session.subscriber("news/#", durable="reader")
        assert {reader.receive(60).destination.name for _ in range(4)} == {"news/a", "news/b"}
        late = session.subscriber("news/+")
        assert sorted(str(late.receive(60).body) for _ in range(2)) == [
            "{'deep': ['news/a']}",
            "{'deep': ['news/b']}",
        ]


def test_a_file_beside_an_export_is_checked_before_anything_is_sent(node, command, tmp_path):
    """Altered, missing, a link, a path that leaves the folder: nothing is imported."""
    content, file = tmp_path / "content", tmp_path / "export"
    content.write_bytes(b"coffee")
    with hms.connect(node.address) as connection, connection.session() as session:
        session.producer("orders").send(hms.Message.file(content))
    command("message", "export", "queue:orders", "--to", str(file))
    (beside,) = files_of(file).iterdir()
    line = ("message", "import", str(file), "--into", "late")
    beside.write_bytes(b"tea")
    assert "line 2: its file" in command(*line, code=1)
    beside.unlink()
    assert "No such file" in command(*line, code=1)
    beside.symlink_to(content)
    assert "line 2: its file" in command(*line, code=1)
    lines = file.read_bytes().replace(beside.name.encode(), b"../content").splitlines(keepends=True)
    trailer = {"count": 1, "sha256": sha256(b"".join(lines[:-1])).hexdigest()}
    file.write_bytes(b"".join([*lines[:-1], json.dumps(trailer).encode() + b"\n"]))
    assert "none" in command(*line, code=1)
    assert contents(node, "queue:late") == {}
    missing = ("message", "export", "subscription:nobody", "--to", str(tmp_path / "no"))
    assert "HMS-" in command(*missing, code=1)
    assert not (tmp_path / "no.part").exists()


def test_files_are_synced_under_their_names_before_an_export_has_its_own(
    node, command, tmp_path, monkeypatch
):
    """After a power cut an export is there with its files, or not at all; and one that has its
    name keeps them, although its folder cannot be synced."""
    content, file, synced, fsync = tmp_path / "content", tmp_path / "export", [], os.fsync
    content.write_bytes(b"a")
    with hms.connect(node.address) as connection, connection.session() as session:
        session.producer("orders").send(hms.Message.file(content))

    def record(descriptor):
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        synced.append((path, file.exists()))
        if path == str(tmp_path):
            raise OSError(errno.EIO, "input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    said = command("message", "export", "queue:orders", "--to", str(file), code=1)

    assert "cannot be written" in said
    assert (str(files_of(file)), False) in synced
    assert synced[-1] == (str(tmp_path), True)
    assert [one.read_bytes() for one in files_of(file).iterdir()] == [b"a"]


def test_an_import_fits_a_node_of_small_transactions_and_a_queue_with_little_room(tmp_path):
    """A chunk of 1 MiB was refused by the first; of the second not even the room was used."""
    small = {"max_transaction_bytes": 1 << 16, "max_message_bytes": 1 << 15}
    queues = {"orders": {}, "late": {}, "few": {"max_messages": 7}}
    file = tmp_path / "file"
    with hms.testing.node(config={"node": {"N1": small}, "hms": {"queue": queues}}) as node:
        with hms.connect(node.address) as connection, connection.session() as session:
            sender = session.producer("orders")
            sent = [sender.send(os.urandom(20_000), {"N": n}).message_id for n in range(20)]

        def said(*words, code=0):
            done = CliRunner().invoke(main, ["message", *words, "--connect", node.address])
            assert done.exit_code == code, done.output
            return done.output

        said("export", "queue:orders", "--to", str(file))
        assert "20 of 20 messages imported" in said("import", str(file), "--into", "late")
        again = "import", str(file), "--into", "few"
        assert "--run-id" in said(*again, code=1)  # another run of the same file has a name
        again = *again, "--run-id", "few"
        assert "7 of 20 messages are imported" in said(*again, code=1)
        with hms.connect(node.address) as connection:
            for queue, count in (("late", 20), ("few", 7)):
                rows = connection.admin.messages(f"queue:{queue}").list(["$OriginalMessageID"])
                originals = [row["properties"]["$OriginalMessageID"] for row in rows]
                assert originals == sent[:count]
            assert connection.admin.messages("queue:few").everything().delete().count == 7
        assert "14 of 20" in said(*again, code=1)


@pytest.mark.parametrize("form", [FORMAT, PACK_FORMAT])
def test_a_line_larger_than_any_message_is_refused_before_it_is_in_memory(tmp_path, form):
    """One of 1 GiB took 2.1 GB of an import before it was refused."""
    path, size = tmp_path / "export", 64 << 20
    header = json.dumps({"format": form, "version": VERSION, "store": ""}).encode() + b"\n"
    with path.open("wb") as file:
        file.write(header + (FRAME.pack(1, size, 0) if form == PACK_FORMAT else b""))
        file.truncate(size + len(header) + FRAME.size)
    own = {"node": {"node1": {"max_message_bytes": 65_536}}}
    with hms.testing.node(config={**CONFIG, **own}) as node:
        words = ["message", "import", str(path), "--into", "orders", "--connect", node.address]
        tracemalloc.start()
        try:
            done = CliRunner().invoke(main, words)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert done.exit_code == 1
    assert "max_message_bytes of the node is 65536" in done.output
    assert peak < size // 2
