"""Message sort (F-C15): what waits is ordered by a property of a declared type."""

import math

import pytest

import hms
from hms.engine.engine import Return
from tests.support.order_rig import TRANSACTED, OrderRig, sorted_queue


@pytest.fixture
def rig():
    return OrderRig(
        sorted_queue("rising", "n"),
        sorted_queue("falling", "n", falling=True),
        sorted_queue("words", "w", "STRING", falling=True),
        sorted_queue("ratios", "r", "DOUBLE"),
        sorted_queue("early", "JMSTimestamp", "LONG", falling=True),
    )


def _send(rig, queue, *numbers):
    for number in numbers:
        rig.send(f"{number}", queue, **({} if number is None else {"n": number}))


def test_waiting_messages_are_ordered_by_their_key_not_by_their_arrival(rig):
    """That is what an operator declares the sort for."""
    _send(rig, "rising", 3, 1, 2)
    _send(rig, "falling", 3, 1, 2)
    assert rig.waiting("rising") == rig.consume("c", "rising") == ["1", "2", "3"]
    assert rig.consume("d", "falling") == ["3", "2", "1"]


def test_messages_without_the_key_keep_their_own_order_behind_the_others(rig):
    """They are not sorted; their order among themselves is all that can be promised."""
    for body, own in (("x", {}), ("5", {"n": 5}), ("y", {}), ("4", {"n": 4})):
        rig.send(body, "rising", **own)
    assert rig.consume("c", "rising") == ["4", "5", "x", "y"]


def test_among_equal_keys_priority_and_then_arrival_decide(rig):
    """The key comes first; where it says nothing, JMS's order holds."""
    for body, priority in (("a", 4), ("b", 9), ("c", 4)):
        rig.send(body, "rising", priority=priority, n=1)
    rig.send("first", "rising", priority=0, n=0)
    assert rig.consume("c", "rising") == ["first", "b", "a", "c"]


def test_texts_and_fractions_sort_in_both_directions(rig):
    """A text cannot simply be negated, and its prefix comes behind it when the order falls."""
    for word in ("b", "ab", "a", "é"):
        rig.send(word, "words", w=word)
    assert rig.consume("c", "words") == ["é", "b", "ab", "a"]
    for ratio in (0.5, -math.inf, 2, 0.25):
        rig.send(str(ratio), "ratios", r=ratio)
    assert rig.consume("d", "ratios") == ["-inf", "0.25", "0.5", "2"]


def test_a_header_field_can_be_the_key(rig):
    """The documents allow JMS's own properties; the newest first is such an order."""
    for body in "abc":
        rig.send(body, "early")
        rig.now_ms += 1
    assert rig.consume("c", "early") == ["c", "b", "a"]


@pytest.mark.parametrize("value", ["2", 2.0, True, 1 << 31, b"2"])
def test_a_key_of_another_type_is_refused_and_changes_nothing(rig, value):
    """Sorted somewhere silently it would come at a time that nobody expects."""
    with pytest.raises(hms.SortKeyMismatch, match="n, which has to be of type INTEGER") as refused:
        rig.send("x", "rising", n=value)
    assert isinstance(refused.value, TypeError)
    assert not rig.waiting("rising")


def test_a_number_that_is_none_is_refused_too(rig):
    """NaN is neither before nor behind anything; it would tear the heap's order."""
    with pytest.raises(hms.SortKeyMismatch):
        rig.send("x", "ratios", r=math.nan)


def test_a_misfit_that_comes_another_way_keeps_its_own_order(rig):
    """A dead letter must go somewhere: it cannot be refused."""
    rig = OrderRig(
        sorted_queue("bin", "n"),
        hms_destination("source", dead_letter="bin", redelivery_limit=1),
    )
    rig.send("x", "source", n="text")
    rig.consume("c", "source")
    rig.give_back("c", Return.FAILED)
    rig.send("1", "bin", n=1)
    assert rig.consume("d", "bin") == ["1", "x"]


def hms_destination(name, **options):
    """A queue that does not sort."""
    from hms.engine.settings import DestinationSettings

    return DestinationSettings("queue", name, **options)


def test_what_comes_back_takes_its_place_by_its_key(rig):
    """Redelivery must not put it in front of smaller keys that came meanwhile."""
    _send(rig, "rising", 5)
    rig.consume("c", "rising", credit=1)
    _send(rig, "rising", 4, 6)
    rig.give_back("c", Return.FAILED)
    assert rig.waiting("rising") == ["4", "5", "6"]
    assert rig.credit("c", 3) == ["4", "5", "6"]


def test_the_order_survives_a_rollback_and_a_crash(rig):
    """It follows from the messages, not from what happened to them."""
    _send(rig, "rising", 3, 1, 2, None)
    rig.consume("c", "rising", session=TRANSACTED, credit=2)
    rig.acknowledge("c")
    rig.rollback()
    rig.boot()
    assert rig.waiting("rising") == ["1", "2", "3", "None"]


def test_a_selector_gets_the_sorted_order_too(rig):
    """Consumers with a selector take from the middle; the order among what they take holds."""
    rig.consume("c", "rising", selector="n > 2", credit=0)
    _send(rig, "rising", 5, 1, 4, 3)
    assert rig.credit("c", 9) == ["3", "4", "5"]


def test_another_sort_in_the_configuration_holds_for_what_waits(rig):
    """An operator who corrects the key must not have to empty the queue first."""
    _send(rig, "rising", 3, 1, 2)
    rig.destinations = (sorted_queue("rising", "n", falling=True),)
    rig.boot()
    assert rig.waiting("rising") == ["3", "2", "1"]


def test_expired_and_purged_messages_leave_a_sorted_queue(rig):
    """Leaving from the middle is only noted; the note must be right in a heap as well."""
    rig.send("2", "rising", n=2, ttl_ms=5)
    _send(rig, "rising", 1, 3)
    rig.pass_time(10)
    assert rig.consume("c", "rising") == ["1", "3"]
    assert rig.line("rising").counters.expired == 1
