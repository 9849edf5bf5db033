"""Groups by JMSXGroupID (F-C17): one consumer has a group, and hands it over without overlap."""

import gc
import tracemalloc

from hms.engine.engine import Return
from hms.engine.groups import message_groups
from hms.engine.groups.candidates import GROWN_AT_ONCE
from tests.support.order_rig import NONE, TRANSACTED, OrderRig, sorted_queue


def _send(rig, *bodies, **options):
    """The group is the body's first letter."""
    for body in bodies:
        rig.send(body, JMSXGroupID=body[0], **options)


def test_all_of_a_group_goes_to_one_consumer_and_groups_are_spread(rig):
    """The consumer may keep the group's state in memory; a fair share of groups is its load."""
    rig.consume("c", connection=1)
    rig.consume("d", connection=2)
    _send(rig, "a1", "b1", "a2", "b2", "a3", "c1", "d1")
    got = {name: rig.taken(name) for name in "cd"}
    owners = {body[0]: name for name, bodies in got.items() for body in bodies}
    assert all(owners[b[0]] == name for name, bodies in got.items() for b in bodies)
    assert sorted(owners.values()) == ["c", "c", "d", "d"]


def test_a_backlog_of_many_groups_is_spread_too(rig):
    """They are all there at once; whoever is asked first must not take them all."""
    _send(rig, *[f"{letter}{n}" for n in range(3) for letter in "abcdef"])
    rig.consume("c", credit=0)
    rig.consume("d", credit=0, connection=2)
    rig.engine.state.queues["plain"].consumers[0].credit = 99
    assert len({b[0] for b in rig.credit("d", 99)}) == 3
    assert len({b[0] for b in rig.taken("c")}) == 3


def test_a_consumer_without_room_holds_up_its_groups_only(rig):
    """A slow consumer costs itself: other groups and messages of no group pass (P8)."""
    rig.consume("slow", credit=1)
    _send(rig, "a1", "a2", "a3")
    rig.consume("fast", connection=2)
    rig.send("alone")
    _send(rig, "b1")
    assert rig.taken("fast") == ["alone", "b1"]
    assert rig.taken("slow") == ["a1"]
    assert rig.waiting() == ["a2", "a3"]
    assert rig.credit("slow", 5) == ["a2", "a3"]


def test_a_group_is_handed_over_in_order_when_its_consumer_closes(rig):
    """What comes back goes before what waits, and to one consumer again."""
    rig.consume("c", credit=2)
    _send(rig, "a1", "a2", "a3")
    rig.consume("d", connection=2)
    assert rig.taken("d") == []
    rig.close("c")
    assert rig.taken("d") == ["a1", "a2", "a3"]


def test_a_lost_connection_hands_its_groups_over(rig):
    """The same when nobody said goodbye."""
    rig.consume("c")
    _send(rig, "a1", "a2")
    rig.consume("d", connection=2)
    rig.lose(1)
    assert rig.taken("d") == ["a1", "a2"]


def test_a_group_waits_for_a_transaction_that_outlives_its_consumer(rig):
    """Its messages are out until the transaction ends: another consumer now would overlap."""
    rig.consume("c", session=TRANSACTED)
    _send(rig, "a1", "a2")
    rig.acknowledge("c", "a1")
    rig.consume("d", connection=2)
    rig.close("c")
    assert rig.taken("d") == []
    rig.rollback()
    assert rig.taken("d") == ["a1", "a2"]


def test_a_commit_that_settles_the_last_of_a_group_lets_it_go_on(rig):
    """Nothing else would deliver what waits for it."""
    rig.consume("c", session=TRANSACTED)
    _send(rig, "a1", "a2")
    rig.acknowledge("c", "a1")
    rig.consume("d", connection=2)
    rig.close("c")
    rig.commit()
    assert rig.taken("d") == ["a2"]


def test_a_negative_group_seq_ends_the_group_once_all_is_settled(rig):
    """The sender says that its consumer may forget it; the next one begins with nothing open."""
    rig.consume("c")
    rig.send("a1", JMSXGroupID="a")
    rig.send("a2", JMSXGroupID="a", JMSXGroupSeq=-1)
    rig.send("a3", JMSXGroupID="a")
    assert rig.taken("c") == ["a1", "a2"]
    rig.consume("d", connection=2)
    rig.send("b1", JMSXGroupID="b")
    rig.send("c1", JMSXGroupID="c")
    rig.acknowledge("c", "a2")
    assert rig.waiting() == ["a3"]
    rig.acknowledge("c", "a1")
    assert not rig.waiting()
    assert sum("a3" in rig.taken(name) for name in "cd") == 1


def test_an_end_that_comes_back_ends_nothing_yet(rig):
    """It was not worked on: the group goes on with it where it was."""
    rig.consume("c")
    rig.send("a1", JMSXGroupID="a", JMSXGroupSeq=-1)
    rig.send("a2", JMSXGroupID="a")
    rig.give_back("c", Return.RELEASED, "a1")
    rig.acknowledge("c", "a1")
    assert rig.taken("c") == ["a1", "a1", "a2"]


def test_an_idle_group_stays_with_its_consumer(rig):
    """Stickiness is for the consumer's own state, which outlives a pause of the sender."""
    rig.consume("c")
    _send(rig, "a1")
    rig.acknowledge("c")
    rig.consume("d", connection=2)
    _send(rig, "b1", "a2")
    assert rig.taken("c") == ["a1", "a2"]
    assert rig.taken("d") == ["b1"]


def test_idle_groups_are_remembered_up_to_a_limit(rig, monkeypatch):
    """A new group name for each message must not fill the memory (P8)."""
    monkeypatch.setattr(message_groups, "GROUPS_REMEMBERED", 3)
    rig.consume("c", credit=8000)
    for n in range(50):
        rig.send("x", JMSXGroupID=f"g{n}")
        rig.acknowledge("c")
    assert rig.line().groups.counts()["groups"] == 3


def test_idle_groups_are_remembered_up_to_so_many_bytes(rig, monkeypatch):
    """10,000 names of 60 KB were 600 MB."""
    monkeypatch.setattr(message_groups, "REMEMBERED_BYTES_MAX", 100_000)
    rig.consume("c", credit=8000)
    for n in range(50):
        rig.send("x", JMSXGroupID=f"g{n}" + "x" * 10_000)
        rig.acknowledge("c")
    groups = rig.line().groups
    assert groups.memory_bytes == groups._idle_bytes <= 100_000
    assert 7 <= groups.counts()["groups"] <= 9


def test_what_groups_take_counts_in_the_quota(rig):
    """400,000 messages, each of a group of its own, took six times what the quota counted."""
    state, groups = rig.engine.state, rig.line().groups
    before, waiting = state.resident_bytes, state.waiting_bytes
    tracemalloc.start()
    try:
        start = tracemalloc.get_traced_memory()[0]
        for n in range(500):
            rig.send("x", JMSXGroupID=f"group {n}", is_persistent=False)
        rig.log.clear()
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - start
    finally:
        tracemalloc.stop()
    counted = state.resident_bytes - before

    assert taken <= counted == state.waiting_bytes - waiting + groups.memory_bytes
    assert groups.memory_bytes > 500 * message_groups.GROUPED_BYTES
    rig.consume("c", credit=1000)
    rig.acknowledge("c")
    rig.close("c")
    assert groups.memory_bytes == state.resident_bytes == 0


def test_a_group_that_nobody_has_costs_nothing_when_it_is_empty(rig):
    """The same where no consumer was ever there."""
    for n in range(10):
        rig.send("x", JMSXGroupID=f"g{n}", ttl_ms=1)
    rig.pass_time(10)
    assert rig.line().groups.counts()["groups"] == 0
    assert rig.line().held_count == rig.line().waiting_count == 0


def test_within_a_group_priority_counts_as_in_the_queue(rig):
    """A group is kept together, not made into another queue."""
    _send(rig, "a1", "a2")
    _send(rig, "a3", priority=9)
    assert rig.consume("c") == ["a3", "a1", "a2"]


def test_a_group_in_a_sorted_queue_goes_by_the_key(rig):
    """The sort says the order of what waits, of a group too."""
    rig = OrderRig(sorted_queue("rising", "n"))
    for n in (3, 1, 2):
        rig.send(str(n), "rising", JMSXGroupID="a", n=n)
    assert rig.waiting("rising") == ["1", "2", "3"]
    assert rig.consume("c", "rising") == ["1", "2", "3"]


def test_failed_messages_come_again_in_order_and_to_the_same_consumer(rig):
    """Redelivery must not give half of a group to another consumer."""
    rig.consume("c", credit=3)
    _send(rig, "a1", "a2", "a3", "a4")
    rig.consume("d", connection=2)
    rig.give_back("c", Return.FAILED)
    assert rig.credit("c", 9) == ["a1", "a2", "a3", "a1", "a2", "a3", "a4"]
    assert rig.taken("d") == []


def test_a_message_that_waits_for_its_redelivery_holds_up_its_group_alone(rig):
    """What is behind it would overtake it; other groups would not."""
    rig.consume("c", "late", credit=1)
    for body in ("a1", "a2", "b1"):
        rig.send(body, "late", JMSXGroupID=body[0])
    rig.give_back("c", Return.FAILED)
    assert rig.credit("c", 5) == ["a1", "b1"]
    rig.pass_time(1000)
    assert rig.taken("c") == ["a1", "a2"]


def test_a_message_that_is_sent_for_later_holds_nothing_up(rig):
    """It has no place in the order before it is due."""
    rig.consume("c")
    rig.send("a1", JMSXGroupID="a", delay_ms=500)
    rig.send("a2", JMSXGroupID="a")
    assert rig.taken("c") == ["a2"]
    rig.pass_time(500)
    assert rig.taken("c") == ["a1"]


def test_a_group_moves_to_a_consumer_whose_selector_wants_what_comes_next(rig):
    """One consumer has it at any instant, and each message goes where it is wanted."""
    rig.consume("red", selector="color = 'red'")
    rig.consume("blue", selector="color = 'blue'", connection=2)
    for body, color in (("r1", "red"), ("b2", "blue"), ("r3", "red")):
        rig.send(body, JMSXGroupID="g", color=color)
    assert (rig.taken("red"), rig.taken("blue")) == (["r1"], [])
    rig.acknowledge("red")
    assert (rig.taken("red"), rig.taken("blue")) == ([], ["b2"])
    rig.acknowledge("blue")
    assert rig.taken("red") == ["r3"]


def test_a_consumer_that_acknowledges_nothing_gets_a_group_in_order(rig):
    """With ack mode NONE each message is settled while it is handed out."""
    _send(rig, "a1", "a2", "b1", "a3")
    got = rig.consume("c", session=NONE)
    assert [b for b in got if b[0] == "a"] == ["a1", "a2", "a3"]
    assert len(got) == 4
    assert not rig.line().out_count


def test_a_group_is_there_again_after_a_crash(rig):
    """It follows from the messages; who had it is gone."""
    rig.consume("c", credit=2)
    _send(rig, "a1", "a2", "a3", "b1")
    rig.acknowledge("c", "a1")
    rig.boot()
    rig.consume("d", credit=0)
    rig.consume("e", credit=0, connection=2)
    assert rig.credit("d", 9) == ["a2", "a3", "b1"]


def test_a_group_of_a_prefetching_consumer_is_not_starved_by_others(rig):
    """The place in the queue decides between a consumer's own groups and what anybody may take."""
    rig.consume("c", credit=1)
    _send(rig, "a1", "a2")
    rig.send("x1")
    _send(rig, "a3")
    rig.send("x2")
    assert rig.credit("c", 3) == ["a1", "a2", "x1", "a3"]


def test_browsing_shows_what_a_group_holds_up(rig):
    """To an operator a message that waits is a message that waits."""
    rig.consume("c", credit=1)
    _send(rig, "a1", "a2", "a3")
    rig.send("x")
    assert rig.waiting() == ["a2", "a3", "x"]
    assert rig.line().waiting_count == 3


def test_thousands_of_messages_of_a_blocked_group_do_not_slow_the_others(rig):
    """The cost of a hand-out must not grow with what waits behind a slow consumer."""
    rig.consume("slow", credit=1)
    for _ in range(2_000):
        _send(rig, "a1")
    rig.consume("fast", connection=2)
    looked = []
    line = rig.line()
    entry = line.entry
    line.entry = lambda message: (looked.append(1), entry(message))[1]
    rig.send("x")
    assert rig.taken("fast") == ["x"]
    assert len(looked) < 20


def test_a_grouped_message_that_leaves_while_selectors_look_is_not_looked_at_again():
    """It stands in the ready queue and in its group; it went to the selector's consumer, too."""
    rig = OrderRig()
    count = GROWN_AT_ONCE // 2 + 200
    for number in range(count):
        for group in "ab":
            rig.send(f"{group}{number}", JMSXGroupID=group, n=1, is_persistent=False)
    rig.consume("A", credit=0)
    rig.consume("B", connection=2, credit=0, selector="n = 1")
    assert rig.credit("A", 1) == ["a0"]
    rig.acknowledge("A")
    for _ in range(5):
        rig.pass_time(1)
    rig.close("A")

    line = rig.line()
    assert line.open_index().keys() == {message.id for message in line.in_order()}
    assert rig.credit("B", 2) == ["b0", "a1"]
    rig.acknowledge("B")
    assert line.waiting_count == line.held_count == 2 * count - 3
