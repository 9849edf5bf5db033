"""File messages on a real node: whole, in blocks, over crashes, and gone when nobody needs them."""

import hashlib
import io
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.testing import node
from tests.support.waiting import wait_until

CONFIG = (
    '[node.n]\nmax_file_bytes = "64 MiB"\n'
    + "".join(f"[hms.queue.q{n}]\n" for n in range(20))
    + "[hms.topic.news]\n"
)
WAIT_S = 60
SIZE = 3_000_001


@pytest.fixture
def source(tmp_path):
    """A file that no compression makes smaller."""
    path = tmp_path / "source.bin"
    path.write_bytes(random.Random(7).randbytes(SIZE))
    return path


def _kept(running):
    """Names of the files; those of an earlier test may go at any time."""
    folder = running.store / "files"
    return {p.name for p in folder.iterdir()} if folder.is_dir() else set()


def _await_removal(running, before):
    """Until no others are kept than were before; a tick of the node comes every second."""
    wait_until(lambda: _kept(running) <= before)


def test_a_file_comes_whole_and_is_gone_when_it_is_saved(running, conn, source, tmp_path):
    """F-F6: in AUTO its message is acknowledged when the file was saved."""
    with conn.session() as session:
        before = _kept(running)
        session.producer("queue:q0").send(hms.Message.file(source, {"Month": 5}))
        assert len(_kept(running) - before) == 1
        message = session.consumer("queue:q0", selector="Month > 4").receive(timeout_s=WAIT_S)
        info = message.file_info
        message.save(tmp_path / "target.bin")
        _await_removal(running, before)

    assert message.kind is hms.BodyKind.FILE
    assert (info.name, info.size_bytes, info.url) == ("source.bin", SIZE, "")
    assert info.sha256 == hashlib.sha256(source.read_bytes()).hexdigest()
    assert (tmp_path / "target.bin").read_bytes() == source.read_bytes()
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".part")] == []
    assert message.properties["Month"] == 5


def test_a_file_is_read_into_a_file_object_too(conn, source):
    """A pipe, a socket, an archive that is being written."""
    target = io.BytesIO()
    with conn.session() as session:
        session.producer("queue:q1").send(hms.Message.file(source, block_bytes=1000))
        session.consumer("queue:q1").receive(timeout_s=WAIT_S).save(target)

    assert target.getvalue() == source.read_bytes()


def test_a_file_among_many_is_not_done_with_before_it_was_saved(running, conn, source, tmp_path):
    """Whoever receives many at once still comes to it in time."""
    with conn.session() as session:
        before = _kept(running)
        producer, consumer = session.producer("queue:q17"), session.consumer("queue:q17")
        for content in (b"a", b"b", hms.Message.file(source), b"c"):
            producer.send(content)
        got = []
        while sum(map(len, got)) < 4:
            got.append(consumer.receive_many(10, WAIT_S))
            if got[-1][0].kind is hms.BodyKind.FILE:
                assert len(got[-1]) == 1
                got[-1][0].save(tmp_path / "target.bin")
        _await_removal(running, before)

    assert (tmp_path / "target.bin").read_bytes() == source.read_bytes()


def test_a_file_that_was_not_saved_comes_again_flagged_when_its_consumer_is_closed(conn, tmp_path):
    """The application has seen the message: it may have read all that it wanted of it."""
    source = tmp_path / "a"
    source.write_bytes(b"x")
    with conn.session() as session:
        session.producer("queue:q18").send(hms.Message.file(source))
        with session.consumer("queue:q18") as consumer:
            first = consumer.receive(timeout_s=WAIT_S)
        again = session.consumer("queue:q18").receive(timeout_s=WAIT_S)
        again.save(tmp_path / "b")

    assert (first.message_id, first.redelivered) == (again.message_id, False)
    assert again.redelivered


@pytest.mark.parametrize("size", [0, 1, 4096, 262_144, 262_145])
def test_a_file_of_any_size_comes_as_it_was(conn, tmp_path, size):
    """Also one without a byte, and one that ends with a block."""
    source = tmp_path / "a"
    source.write_bytes(b"x" * size)
    with conn.session() as session:
        session.producer("queue:q2").send(hms.Message.file(source))
        session.consumer("queue:q2").receive(timeout_s=WAIT_S).save(tmp_path / "b")

    assert (tmp_path / "b").read_bytes() == source.read_bytes()


def test_each_subscriber_has_the_file_and_it_stays_for_the_last_one(
    running, conn, source, tmp_path
):
    """One file for all of them, as one message."""
    topic = hms.Topic("news")
    with conn.session(hms.AckMode.CLIENT) as session:
        inns = [session.subscriber(topic, durable=name) for name in ("a", "b")]
        before = _kept(running)
        session.producer(topic).send(hms.Message.file(source))
        for inn in inns:
            message = inn.receive(timeout_s=WAIT_S)
            assert len(_kept(running) - before) == 1
            message.save(tmp_path / "target.bin")
            message.ack()
        _await_removal(running, before)


def test_url_only_hands_over_where_the_node_keeps_it(conn, source):
    """For who shares the disk with the node, or fetches it by other ways."""
    with conn.session(hms.AckMode.CLIENT) as session:
        session.producer("queue:q3").send(hms.Message.file(source, url_only=True))
        message = session.consumer("queue:q3").receive(timeout_s=WAIT_S)
        there = Path(unquote(urlsplit(message.file_info.url).path))
        content = there.read_bytes()
        message.ack()

    assert content == source.read_bytes()


def test_a_message_is_sent_on_with_its_file(running, conn, source, tmp_path):
    """From queue to queue, in a transaction: the file stays where it is."""
    with conn.session(transacted=True) as session:
        session.producer("queue:q4").send(hms.Message.file(source))
        session.commit()
        session.producer("queue:q5").send(session.consumer("queue:q4").receive(timeout_s=WAIT_S))
        session.commit()
    with conn.session() as session:
        session.consumer("queue:q5").receive(timeout_s=WAIT_S).save(tmp_path / "b")

    assert (tmp_path / "b").read_bytes() == source.read_bytes()


def test_a_purged_or_rolled_back_file_message_leaves_no_file(running, conn, source):
    """Nobody would ever ask for it again. What a rolled back transaction brought is kept for
    file_life_s, as its sender may send it again."""
    before = _kept(running)
    with conn.session() as session:
        session.producer("queue:q6").send(hms.Message.file(source))
        session.producer("queue:q6").send(hms.Message.file(source), ttl_s=0.01)
        conn.administer("queue.purge", {"name": "q6"})
    _await_removal(running, before)


def test_a_node_without_room_says_so(conn, tmp_path):
    """P8: the folder has a limit, which names the key to raise."""
    large = tmp_path / "large"
    with large.open("wb") as opened:
        opened.truncate(65 << 20)
    with conn.session() as session, pytest.raises(hms.SpoolFull, match="max_file_bytes"):
        session.producer("queue:q7").send(hms.Message.file(large))


def test_bad_files_are_typed_errors(conn, source, tmp_path):
    """At the line that is wrong."""
    with pytest.raises(hms.FileUnreadable):
        hms.Message.file(tmp_path / "nowhere")
    with pytest.raises(hms.HmsError, match="block_bytes"):
        hms.Message.file(source, block_bytes=0)
    with conn.session() as session:
        out = session.producer("queue:q8")
        with pytest.raises(hms.HmsError, match="not in a batch"):
            out.send_many([hms.Message.file(source)])
        with pytest.raises(hms.HmsError, match="not in a batch"):
            out.schedule("again", hms.Message.file(source), every_s=1)
        with pytest.raises(hms.HmsError, match="has no file"):
            hms.Message.text("x").save(tmp_path / "x")
        out.send(hms.Message.file(source))
        message = session.consumer("queue:q8").receive(timeout_s=WAIT_S)
        with pytest.raises(hms.FileUnreadable):
            message.save(tmp_path / "no" / "folder")
        message.save(tmp_path / "good")


def test_a_sender_goes_on_where_a_killed_node_had_come_to(tmp_path, source):
    """The node dies while the file is coming: the rest comes after it, and all of it is whole."""
    big = tmp_path / "big"
    big.write_bytes(source.read_bytes() * 12)
    with (
        node(store=tmp_path / "store", config=CONFIG) as started,
        hms.connect(started.address, reconnect_interval_s=0.1) as conn,
        conn.session() as session,
        ThreadPoolExecutor(1) as pool,
    ):
        out = session.producer("queue:q0")
        sending = pool.submit(out.send, hms.Message.file(big))
        wait_until(lambda: any((started.store / "files").glob("*.part")), pause_s=0.001)
        started.kill()
        started.boot(warm=True)
        receipt = sending.result(200)
        inn = session.consumer("queue:q0")
        first = inn.receive(timeout_s=WAIT_S)
        started.kill()
        started.boot(warm=True)
        again = inn.receive(timeout_s=WAIT_S)
        again.save(tmp_path / "target")

    assert first.message_id == again.message_id == receipt.message_id
    assert (tmp_path / "target").read_bytes() == big.read_bytes()


def test_files_survive_a_crash_with_their_messages(tmp_path, source):
    """And those whose messages were acknowledged are given up."""
    with node(store=tmp_path / "store", config=CONFIG) as started:
        with hms.connect(started.address) as conn, conn.session() as session:
            session.producer("queue:q0").send(hms.Message.file(source))
        started.kill()
        started.boot(warm=True)
        with hms.connect(started.address) as conn, conn.session() as session:
            session.consumer("queue:q0").receive(timeout_s=WAIT_S).save(tmp_path / "target")
            _await_removal(started, set())

    assert (tmp_path / "target").read_bytes() == source.read_bytes()


def test_the_shell_sends_and_saves_files(running, conn, source, tmp_path):
    """An operator's first file needs no program; a message without a place for it goes back."""

    def run(*words):
        return CliRunner().invoke(main, [*words, "--connect", running.address], prog_name="hms")

    said = run("send", "queue:q9", "--as-file", str(source), "--property", "Host=db1")
    assert said.exit_code == 0, said.output
    assert run("receive", "q9").exit_code == 1
    (tmp_path / "in").mkdir()
    said = run("receive", "q9", "--save-to", str(tmp_path / "in"), "--json")

    assert said.exit_code == 0, said.output
    assert (tmp_path / "in" / "source.bin").read_bytes() == source.read_bytes()
    assert run("send", "q9", "text", "--as-file", str(source)).exit_code == 2
