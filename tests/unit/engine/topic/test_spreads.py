"""A publication to very many subscriptions begins to wait in slices; here each is a slice."""

import pytest

from hms.engine.messages import Holders
from hms.engine.settings import DestinationSettings
from hms.errors.catalogue import PublicationFailed
from hms.wire.packed_messages import ROW, Head, encode_head, pack_messages
from tests.support.spreads import tiny_spreads
from tests.support.topic_rig import TopicRig

NAMES = [f"s{n}" for n in range(7)]


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    tiny_spreads(monkeypatch)


def rig_of(*destinations, **limits):
    """Seven durable subscriptions to one topic, idle."""
    rig = TopicRig(*destinations, **limits)
    for name in NAMES:
        rig.close(rig.subscribe("t", durable=name))
    return rig


def read(rig, name):
    """What a subscription has, which is acknowledged."""
    got = rig.subscribe("t", durable=name)
    rig.acknowledge(got)
    rig.close(got)
    return got.bodies


def waiting(rig):
    """How many wait at each of the subscriptions."""
    return [s.line.waiting_count for s in rig.engine.state.space.subscriptions.values()]


def test_subscriptions_get_a_publication_one_after_the_other_and_counted_at_once():
    """65,535 had it under one hold of 160 ms."""
    rig = rig_of()
    rig.publish("t", "1")
    state = rig.engine.state

    assert waiting(rig) == [0] * 7
    assert state.waiting_bytes > 7
    seen = []
    while rig.engine.is_behind:
        rig.tick(1)
        seen.append(sum(waiting(rig)))
    assert seen == [1, 2, 3, 4, 5, 6, 7]
    assert state.waiting_bytes == sum(s.line.size_bytes for s in state.space.subscriptions.values())
    assert [read(rig, name) for name in NAMES] == [["1"]] * 7
    assert state.waiting_bytes == rig.engine.live_bytes() == 0


def test_what_is_published_meanwhile_stands_behind_it():
    """Each subscription has everything in the order in which it was published."""
    rig = rig_of()
    rig.publish("t", "1")
    rig.tick(1)
    rig.publish("t", "2")
    rig.tick(1)
    rig.publish("t", "3")
    while rig.engine.is_behind:
        rig.tick(1)

    assert [read(rig, name) for name in NAMES] == [["1", "2", "3"]] * 7


@pytest.mark.parametrize("slices", [0, 1, 3, 6])
def test_a_crash_in_between_finds_all_of_it_in_the_log(slices):
    """The record decides: it was confirmed, so all have it."""
    rig = rig_of()
    rig.publish("t", "1")
    for _ in range(slices):
        rig.tick(1)
    rig.boot()

    assert [read(rig, name) for name in NAMES] == [["1"]] * 7


@pytest.mark.parametrize("slices", [0, 1, 3, 6])
def test_the_end_of_a_segment_in_between_keeps_all_of_it(slices):
    """The message is told again with all its places, also those that it is on the way to."""
    rig = rig_of()
    rig.publish("t", "1")
    for _ in range(slices):
        rig.tick(1)
    rig.retire()
    rig.boot()

    assert [read(rig, name) for name in NAMES] == [["1"]] * 7


def test_who_reads_has_what_was_confirmed_before():
    """A client that publishes and then reads expects its own message."""
    rig = rig_of()
    rig.publish("t", "1")

    assert read(rig, NAMES[-1]) == ["1"]
    while rig.engine.is_behind:
        rig.tick(1)
    assert [read(rig, name) for name in NAMES] == [["1"]] * 6 + [[]]


def test_a_subscription_that_ends_in_between_takes_its_part_with_it():
    """What was on its way to it holds no memory and no segment."""
    rig = rig_of()
    rig.publish("t", "1")
    rig.tick(1)
    rig.run(lambda fx: rig.engine.unsubscribe("t", NAMES[-1], rig.now_ms, fx))
    while rig.engine.is_behind:
        rig.tick(1)

    assert [read(rig, name) for name in NAMES[:-1]] == [["1"]] * 6
    assert rig.engine.state.waiting_bytes == rig.engine.live_bytes() == 0


def test_one_that_has_no_room_refuses_it_before_anything_is_on_its_way():
    """Whole or not at all, as without slices (PD-02)."""
    topic = DestinationSettings(
        "topic", "t", messages_max=1, persistent_delivery="ALL", topic_string="t"
    )
    rig = rig_of(topic)
    rig.publish("t", "1")
    while rig.engine.is_behind:
        rig.tick(1)
    assert read(rig, NAMES[0]) == ["1"]
    with pytest.raises(PublicationFailed):
        rig.publish("t", "2")

    assert not rig.engine.state.spreads
    assert [read(rig, name) for name in NAMES] == [[]] + [["1"]] * 6


def test_those_with_a_selector_get_theirs_with_it():
    """The record has a bitmap for each of them."""
    rig = TopicRig()
    for name in NAMES:
        rig.close(rig.subscribe("t", durable=name, selector=f"n < {NAMES.index(name)}"))
    heads = [encode_head(Head({"n": n})) for n in (3, 5, 4)]
    rows = [
        (ROW.pack(len(head), 1, 0, 0, 4, 0, 0, 0), head, body)
        for head, body in zip(heads, (b"1", b"2", b"3"), strict=True)
    ]
    producer, pack, lasts = rig.producer("t"), memoryview(pack_messages(rows)), True
    rig.run(lambda fx: rig.engine.send(1, 5, producer, 1, 3, lasts, pack, rig.now_ms, fx))
    rig.tick(1)
    rig.boot()

    got = {name: _read_selected(rig, name) for name in NAMES}
    assert got == {
        "s0": [],
        "s1": [],
        "s2": [],
        "s3": [],
        "s4": ["1"],
        "s5": ["1", "3"],
        "s6": ["1", "2", "3"],
    }


def _read_selected(rig, name):
    got = rig.subscribe("t", durable=name, selector=f"n < {NAMES.index(name)}")
    rig.acknowledge(got)
    rig.close(got)
    return got.bodies


def test_holders_are_a_set_that_shares_what_is_the_same():
    """Of 1,024 messages for 65,000 places, each had a set of its own."""
    group = frozenset(range(1, 5))
    one, other = Holders([group]), Holders([group, frozenset((9,))])
    one.discard(2)

    assert sorted(one) == [1, 3, 4]
    assert (len(one), 2 in one, 3 in one) == (3, False, True)
    assert sorted(other) == [1, 2, 3, 4, 9]
    one.add(2)
    one.add(7)
    one.add(7)
    assert (sorted(one), len(one)) == ([1, 2, 3, 4, 7], 5)
