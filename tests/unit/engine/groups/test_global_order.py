"""Global order (F-C16): messages go out strictly one after the other, whoever receives them."""

import pytest

import hms
from hms.engine.engine import Return
from hms.engine.settings import DEAD_LETTER_QUEUE
from hms.wire.packed_messages import (
    FLAG_ORDER,
    NODE_ORDER_CLOCK,
    ROW,
    Head,
    encode_head,
    pack_messages,
)
from tests.support.order_rig import NONE, TRANSACTED, OrderRig, sorted_queue


@pytest.fixture
def rig():
    return OrderRig(sorted_queue("rising", "n"))


def _send(rig, *bodies, order="o", **options):
    rig.send_all(bodies, order=order, **options)


def test_the_next_message_goes_out_when_the_one_before_is_settled(rig):
    """Consumers that work side by side must not work on two of them at once."""
    rig.consume("c", credit=9)
    rig.consume("d", credit=9, connection=2)
    _send(rig, "1", "2", "3")
    first = rig.taken("c") + rig.taken("d")
    assert first == ["1"]
    for _ in range(3):
        for name in "cd":
            rig.acknowledge(name)
    assert sorted(rig.taken("c") + rig.taken("d")) == ["2", "3"]


def test_an_order_is_shared_by_all_its_producers(rig):
    """Its name is what it is known by, over connections and sessions."""
    _send(rig, "1")
    _send(rig, "2", connection=2)
    _send(rig, "3", session=TRANSACTED)
    rig.commit()
    got = rig.consume("c")
    for _ in range(2):
        rig.acknowledge("c")
        got += rig.taken("c")
    assert got == ["1", "2", "3"]


def test_several_orders_and_other_messages_do_not_wait_for_each_other(rig):
    """A consumer that is stuck holds up its order alone."""
    _send(rig, "a1", "a2", order="a")
    _send(rig, "b1", "b2", order="b")
    rig.send("x")
    assert rig.consume("c") == ["a1", "b1", "x"]


def test_priority_and_sort_key_do_not_change_an_order(rig):
    """It is the order of sending; else it would be no order."""
    _send(rig, "1")
    _send(rig, "2", priority=9)
    assert rig.consume("c") == ["1"]
    _send(rig, "5", queue="rising", n=5)
    _send(rig, "4", queue="rising", n=4)
    assert rig.consume("d", "rising") == ["5"]


@pytest.mark.parametrize("how", [Return.FAILED, Return.RELEASED, Return.LOST])
def test_what_comes_back_goes_out_again_before_the_next(rig, how):
    """Redelivery keeps the order, however the message came back."""
    _send(rig, "1", "2")
    rig.consume("c", credit=1)
    rig.give_back("c", how)
    assert rig.credit("c", 5) == ["1"]
    rig.acknowledge("c")
    assert rig.taken("c") == ["2"]


def test_a_message_that_waits_for_its_redelivery_blocks_its_order(rig):
    """The next one must not pass it meanwhile."""
    rig.consume("c", "late")
    _send(rig, "1", "2", queue="late")
    rig.give_back("c", Return.FAILED)
    assert rig.taken("c") == ["1"]
    rig.pass_time(1000)
    assert rig.taken("c") == ["1"]
    rig.acknowledge("c")
    assert rig.taken("c") == ["2"]


def test_a_dead_letter_lets_its_order_go_on(rig):
    """It will never be settled; and in the dead letter queue it blocks nobody."""
    rig.consume("c")
    _send(rig, "1", "2")
    rig.give_back("c", Return.REJECTED)
    assert rig.taken("c") == ["1", "2"]
    rig.give_back("c", Return.REJECTED)
    assert rig.consume("d", DEAD_LETTER_QUEUE) == ["1", "2"]


def test_a_message_that_expires_lets_its_order_go_on(rig):
    """Also when it is the first of it."""
    rig.consume("c", credit=0)
    _send(rig, "1", ttl_ms=5)
    _send(rig, "2")
    rig.pass_time(10)
    assert rig.credit("c", 2) == ["2"]


def test_an_open_transaction_holds_the_order_until_it_ends(rig):
    """What it took may still come back."""
    rig.consume("c", session=TRANSACTED)
    _send(rig, "1", "2")
    rig.acknowledge("c")
    assert rig.taken("c") == ["1"]
    rig.commit()
    assert rig.taken("c") == ["2"]


def test_a_lost_consumer_gives_the_order_on(rig):
    """The order must not hang on a connection that is gone."""
    rig.consume("c")
    _send(rig, "1", "2")
    rig.lose(1)
    assert rig.consume("d", connection=2) == ["1"]


def test_an_order_goes_on_after_a_crash_with_what_was_out(rig):
    """What was out comes first, and nothing beside it."""
    rig.consume("c")
    _send(rig, "1", "2", "3")
    rig.acknowledge("c")
    rig.boot()
    assert rig.consume("d") == ["2"]


def test_without_acknowledgements_an_order_is_only_a_sequence(rig):
    """With ack mode NONE a message is settled when it is handed out."""
    _send(rig, "1", "2", "3")
    assert rig.consume("c", session=NONE) == ["1", "2", "3"]


def test_a_selector_waits_for_the_first_of_an_order(rig):
    """Nothing passes it, not even what only this consumer wants."""
    rig.consume("c", selector="n = 2")
    _send(rig, "1", n=1)
    _send(rig, "2", n=2)
    assert rig.taken("c") == []
    rig.consume("d", connection=2)
    rig.acknowledge("d")
    assert rig.taken("c") == ["2"]


def test_each_message_carries_the_clock_of_its_order_which_never_runs_back(rig):
    """Nodes of a cluster order what they have by it, also over restarts and steps of the clock."""
    _send(rig, "1", "2", order="a")
    _send(rig, "3", order="b")
    rig.boot()
    rig.now_ms -= 500
    _send(rig, "4", order="a")
    clocks = [m.head().node[NODE_ORDER_CLOCK] for m in rig.line().in_order()]
    assert clocks == sorted(set(clocks))
    assert clocks[0] >> 16 == 1000


def test_a_clock_that_is_ahead_is_taken_over(rig):
    """A message of another node was sent before what its receiver sends now: it must stay so."""
    _send(rig, "1")
    rig.line().groups.clock += 5 << 16
    _send(rig, "2")
    clocks = [m.head().node[NODE_ORDER_CLOCK] for m in rig.line().in_order()]
    assert clocks[1] - clocks[0] == (5 << 16) + 1


def test_a_marked_message_that_names_no_order_is_refused(rig):
    """A client of another language may be wrong; the order would silently not be kept."""
    rig.send("x")
    for head in (Head(), Head({"JMS_HMS_GlobalOrder": 1})):
        data = encode_head(head)
        row = ROW.pack(len(data), 0, 0, 0, 4, 0, FLAG_ORDER, 0)
        pack = memoryview(pack_messages([(row, data, b"")]))
        arguments = 1, 1, rig.producers[1, 1, "plain"], 99, 1, rig.now_ms > 0, pack, rig.now_ms
        with pytest.raises(hms.InvalidArgument, match="global order"):
            rig.run(lambda fx, arguments=arguments: rig.engine.send(*arguments, fx))
    assert rig.waiting() == ["x"]


def test_the_stamps_of_a_transaction_count_in_its_size(rig):
    """Its record grows by them; one that fits no segment would stop the node."""
    rig = OrderRig(transaction_bytes_max=20_000)
    with pytest.raises(hms.TransactionTooLarge):
        _send(rig, *[""] * 2_000, session=TRANSACTED)
    rig.commit()
    assert max(len(payload) for _, payload in rig.log) <= 20_000


def _move(rig, **given):
    """An operator moves what is in "plain" to "late"."""
    asked = {"place": "queue:plain", "to": "late", **given}
    return rig.run(lambda fx: rig.engine.administer("message.move", asked, rig.now_ms, fx))


def test_an_operator_takes_a_message_out_of_an_order_only_when_told_to_break_it(rig):
    """The next one then waits for it no more, here and after a crash; at its new queue it stands in
    the order that is there."""
    _send(rig, "1", "2", "3")
    _send(rig, "4", queue="late")
    rig.consume("c", credit=1)
    (second,) = [m for m in rig.line().everything() if bytes(m.payload[m.head_bytes :]) == b"2"]
    said = _move(rig, is_all=True)
    assert (said["count"], said["skipped_ordered"], said["skipped_in_flight"]) == (0, 2, 1)

    said = _move(rig, ids=f"{second.id:012x}", is_order_broken=True)

    assert (said["count"], said["skipped_ordered"]) == (1, 0)
    rig.acknowledge("c")
    assert rig.credit("c", 1) == ["3"]
    rig.boot()
    assert rig.consume("c", credit=9) == ["3"]
    assert rig.consume("d", "late", credit=9) == ["2"]
    rig.acknowledge("d")
    assert rig.taken("d") == ["4"]


def test_a_gathered_group_stays_whole_however_its_order_is_broken(rig):
    """Its parts are worth nothing alone."""
    rig.send("1", "lists", GROUP_NAME="g", GROUP_NUMBERING=1)
    asked = {"place": "queue:lists", "to": "late", "is_all": True, "is_order_broken": True}
    said = rig.run(lambda fx: rig.engine.administer("message.move", asked, rig.now_ms, fx))
    assert (said["count"], said["skipped_ordered"]) == (0, 1)
