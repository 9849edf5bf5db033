"""The ledger of a replay in a real node: one truth, whoever dies or takes over. No Spark."""

from dataclasses import replace

import pytest

import hms
import hms.testing
from hms.client.connection import Connection
from hms.errors.catalogue import QueueFull, ReplayTakenOver
from hms.history.ledger import Entry, known_runs
from hms.history.resend import Chunk, Pack, Resender
from hms.wire.packed_messages import ROW, pack_messages

CONFIG = {"hms": {"queue": {"again": {}, "small": {"max_messages": 3}}}}


def chunk(first, count, name="again"):
    rows = [(ROW.pack(0, 1, 0, 0, 4, 0, 0, 0), b"", b"x")] * count
    packs = [Pack("queue", name, count, pack_messages(rows))]
    return Chunk(first, first + count - 1, count, 0, 0, packs)


def behind(entry, sent):
    done = replace(entry, next_offset=sent.last + 1, sent=entry.sent + sent.rows)
    return replace(done, last_offset=sent.last)


def waiting(running):
    with hms.connect(running.address) as connection:
        return connection.administer("queue.show", {"name": "again"})["waiting"]


def test_who_resumes_a_run_takes_it_over_from_one_that_still_lives(running):
    """Two processes of one run must not send in turns without knowing."""
    before, begun = waiting(running), Entry("taken", "/s", {}, 0, 100)
    with Resender(running.address, "taken") as old:
        first, second = chunk(0, 3), chunk(3, 4)
        one = behind(begun, first)
        old.send(first, one)
        with Resender(running.address, "taken") as new:
            assert new.entry == one
            new.send(second, behind(one, second))
        with pytest.raises(ReplayTakenOver):
            old.send(second, replace(behind(one, second), copies=1))

    assert waiting(running) == before + 7


def test_who_is_taken_over_before_it_has_asked_anything_is_told_so(running):
    """Two imports of one file that begin in the same moment."""
    others = []

    def connect(**options):
        mine, other = (Connection(running.address, **options).open() for _ in range(2))
        others.append(other)
        return mine

    with pytest.raises(ReplayTakenOver), Resender("", "at once", connect):
        pass
    others[0].close()


def test_a_chunk_survives_the_crash_of_its_node(running):
    """The replay waits for the node, and what was in doubt is asked for, not guessed."""
    before, begun = waiting(running), Entry("crash", "/s", {}, 0, 100)
    with Resender(running.address, "crash") as sender:
        first, second = chunk(0, 5), chunk(5, 5)
        one = behind(begun, first)
        sender.send(first, one)
        running.kill()
        running.boot(warm=True)
        sender.send(second, behind(one, second))

    assert waiting(running) == before + 10
    (entry,) = [known for known in known_runs(running.address) if known.run == "crash"]
    assert (entry.sent, entry.next_offset) == (10, 10)


def test_an_open_chunk_is_not_there_when_its_sender_is_gone(running):
    """What the ledger does not say is not in the target either."""
    before, begun = waiting(running), Entry("open", "/s", {}, 0, 100)
    with Resender(running.address, "open") as sender:
        sender.send(chunk(0, 2), behind(begun, chunk(0, 2)))
        producer = sender._producer(("queue", "again"))
        producer.settle(producer.submit_packs([(p.pack, p.messages) for p in chunk(2, 9).packs]))
    with Resender(running.address, "open") as again:
        assert again.entry.next_offset == 2

    assert waiting(running) == before + 2


def test_a_refused_chunk_leaves_the_ledger_as_it_was(running):
    """The entry is written before the confirmations are waited for; it must go with the chunk."""
    one = behind(Entry("full", "/s", {}, 0, 100), chunk(0, 2, "small"))
    with Resender(running.address, "full") as sender:
        sender.send(chunk(0, 2, "small"), one)
        refused = chunk(2, 2, "small")
        with pytest.raises(QueueFull):
            sender.send(refused, behind(one, refused))
    with Resender(running.address, "full") as again:
        assert again.entry == one
        last = chunk(2, 1, "small")
        again.send(last, behind(one, last))

    (entry,) = [known for known in known_runs(running.address) if known.run == "full"]
    assert (entry.sent, entry.next_offset) == (3, 3)
