"""Selectors of a publication are asked in slices before it, and say what they would say at once."""

import random

import pytest

from hms.engine.engine import Engine
from hms.engine.log.live_index import SEGMENT_SHIFT
from hms.engine.topic import asking, publication_run
from hms.wire import structures as wire
from hms.wire.frames import Envelope, Kind, SendHead, encode_send
from hms.wire.packed_messages import ROW, Head, encode_head
from tests.support.memory_peer import Node, Peer

SELECTORS = [
    "a LIKE '%1%'",
    "a LIKE '_2' OR b > 3",
    "b = 2",
    "b = 2 AND a LIKE '%0'",
    "b IN (1, 3)",
    "b IS NULL",
    "NOT (b = 1)",
    "JMSPriority > 4",
    "JMSTimestamp > 0 AND a LIKE '1%'",
    "JMSMessageID LIKE '%1'",
    "JMSExpiration > 0",
    "$GlobalOrderClock IS NULL AND b < 3",
    "c = 'x'",
]


def packed(rng, count):
    rows, parts = [], []
    for _ in range(count):
        values = {"a": str(rng.randrange(30))}
        if rng.random() < 0.8:
            values["b"] = rng.choice((1, 2, 2.0, 3, 4, True))
        head = encode_head(Head(values))
        rows.append(ROW.pack(len(head), 1, rng.choice((0, 9000)), 0, rng.randrange(9), 0, 0, 0))
        parts.append(head + b"x")
    return b"".join(rows + parts)


def frame_of(first, count, pack, *, is_persistent=False, producer=900):
    payload = encode_send(SendHead(producer, count, first, is_persistent=is_persistent), pack)
    return Envelope(Kind.SEND, first, count, len(payload)), payload


def subscribers(node, *, is_durable):
    """A peer with a subscription for each selector; handles count from 100."""
    peer = Peer(node, 1)
    for handle, selector in enumerate(SELECTORS, 100):
        durable = f"d{handle}" if is_durable else ""
        peer.request(
            wire.OpenConsumer(handle, 1, "topic", "news", 0, selector=selector, durable=durable)
        )
    peer.request(wire.OpenProducer(900, 1, "topic", "news"))
    return peer


def have(node):
    """By subscription, the ids of what waits there, in order."""
    return have_in(node.engine)


def have_in(engine):
    """The same, of an engine."""
    places = engine.state.space.subscriptions.values()
    return [(p.selector.text, [m.id for m in p.line.in_order()]) for p in places]


def published(folder, seed, monkeypatch, steps, *, is_persistent, is_transacted=False):
    for module in (asking, publication_run):
        monkeypatch.setattr(module, "LOOK_STEPS", steps)
    rng, node = random.Random(seed), Node(folder)
    peer = subscribers(node, is_durable=is_persistent)
    producer = 900
    if is_transacted:
        peer.request(wire.OpenSession(2, 0, is_transacted=True))
        peer.request(wire.OpenProducer(901, 2, "topic", "news"))
        producer = 901
    turns = 0
    for first in (1, 41, 42):
        count = 1 if first == 41 else 40
        pack = packed(rng, count)
        items = [frame_of(first, count, pack, is_persistent=is_persistent, producer=producer)]
        while items:
            node.broker.turn(peer.name, items)
            turns += 1
    if is_transacted:
        payload = wire.encode(wire.Commit(2, 1))
        items = [(Envelope(Kind.REQUEST, 1, 0, len(payload)), payload)]
        while items:
            node.broker.turn(peer.name, items)
            turns += 1
    return have(node), turns, node


@pytest.mark.parametrize("is_transacted", [False, True])
@pytest.mark.parametrize("is_persistent", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_slices_choose_what_one_look_chooses(
    tmp_path, monkeypatch, seed, is_persistent, is_transacted
):
    """The ids too: they are given in the same order."""
    how = {"is_persistent": is_persistent, "is_transacted": is_transacted}
    at_once, turns, _ = published(tmp_path / "one", seed, monkeypatch, 1 << 40, **how)
    in_slices, more, node = published(tmp_path / "two", seed, monkeypatch, 20, **how)

    assert at_once == in_slices
    assert more > 10 * turns
    assert sum(len(ids) for _, ids in at_once) > 100
    if is_persistent:
        node.step()
        again = Engine(node.engine.state.settings)
        recovery = again.recovery()
        for number, (kind, _, payload) in enumerate(node.store.records, 1):
            recovery.apply(kind, payload, number << SEGMENT_SHIFT)
        recovery.finish()
        assert have_in(again) == at_once


def test_who_subscribes_between_two_slices_is_asked_and_who_leaves_is_not(tmp_path, monkeypatch):
    """An answer counts for a text, whoever has it."""
    for module in (asking, publication_run):
        monkeypatch.setattr(module, "LOOK_STEPS", 20)
    node = Node(tmp_path)
    peer, other = subscribers(node, is_durable=False), Peer(node, 2)
    items = [frame_of(1, 40, packed(random.Random(1), 40))]
    for turn in range(20):
        node.broker.turn(peer.name, items)
        if turn == 5:
            other.request(wire.OpenConsumer(1, 1, "topic", "news", 0, selector="JMSPriority < 99"))
            other.request(wire.OpenConsumer(2, 1, "topic", "news", 0, selector="b = 2"))
            peer.request(wire.CloseConsumer(100))
    assert items
    while items:
        node.broker.turn(peer.name, items)

    found = dict(have(node))
    assert SELECTORS[0] not in found
    assert len(found["JMSPriority < 99"]) == 40
    places = node.engine.state.space.subscriptions.values()
    alike = [[m.id for m in p.line.in_order()] for p in places if p.selector.text == "b = 2"]
    assert len(alike) == 2
    assert alike[0] == alike[1] != []


def test_another_batch_under_the_same_number_is_asked_itself(tmp_path, monkeypatch):
    """What was asked for a batch that was refused meanwhile says nothing of the next one."""
    for module in (asking, publication_run):
        monkeypatch.setattr(module, "LOOK_STEPS", 20)
    node = Node(tmp_path)
    peer = subscribers(node, is_durable=False)
    items = [frame_of(1, 40, packed(random.Random(1), 40))]
    for _ in range(30):
        node.broker.turn(peer.name, items)
    assert items, "it is not stored yet"
    row = ROW.pack(0, 0, 0, 0, 9, 0, 0, 0)

    items = [frame_of(1, 2, row * 2)]
    while items:
        node.broker.turn(peer.name, items)

    found = dict(have(node))
    assert len(found["b IS NULL"]) == len(found["JMSPriority > 4"]) == 2
    assert found["b = 2"] == []
    assert node.engine.state.connections[1].producers[900].answers is None
