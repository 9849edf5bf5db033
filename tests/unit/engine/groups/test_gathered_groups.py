"""Gathered groups (F-C17): a list goes out whole, to one consumer, and is settled as one."""

import pytest

import hms
from hms.engine.engine import Return
from hms.engine.settings import DEAD_LETTER_QUEUE
from tests.support.order_rig import NONE, TRANSACTED


def _send(rig, *numbers, name="g", end=3, prefix="", **options):
    """The body is the group's name and the number."""
    for number in numbers:
        own = {f"{prefix}GROUP_NAME": name, f"{prefix}GROUP_NUMBERING": number}
        if number == end:
            own[f"{prefix}GROUP_END"] = True
        rig.send(f"{name}{number}", "lists", **own, **options)


def _letters(rig):
    queue = rig.engine.state.queues[DEAD_LETTER_QUEUE]
    return {
        bytes(m.payload[m.head_bytes :]).decode(): m.head().node["$DeadReason"]
        for m in queue.line.in_order()
    }


def test_a_list_waits_until_it_is_whole_and_comes_in_the_order_of_its_numbers(rig):
    """Who works on a group needs all of it, in the order its sender gave."""
    rig.consume("c", "lists")
    _send(rig, 3, 1)
    assert rig.taken("c") == []
    _send(rig, 2)
    assert rig.taken("c") == [["g1", "g2", "g3"]]


@pytest.mark.parametrize("prefix", ["JMS_JEUS_MSG_", "JMS_HMS_MSG_"])
def test_the_documented_names_of_the_properties_are_understood(rig, prefix):
    """Programs written for the documents set these."""
    rig.consume("c", "lists")
    _send(rig, 1, 2, 3, prefix=prefix)
    assert rig.taken("c") == [["g1", "g2", "g3"]]


def test_an_incomplete_list_holds_nobody_up(rig):
    """Other lists and messages of no group pass it."""
    rig.consume("c", "lists")
    _send(rig, 1, 3)
    _send(rig, 2, 1, end=2, name="h")
    rig.send("alone", "lists")
    assert rig.taken("c") == [["h1", "h2"], "alone"]
    assert rig.waiting("lists") == ["g1", "g3"]


def test_a_list_takes_one_credit_and_is_never_split_over_consumers(rig):
    """A consumer with a prefetch of one must get it, and nobody else a part of it."""
    rig.consume("c", "lists", credit=1)
    rig.consume("d", "lists", credit=1, connection=2)
    _send(rig, 1, 2, 3)
    _send(rig, 1, 2, 3)
    _send(rig, 1, 2, 3)
    whole = [["g1", "g2", "g3"]]
    assert rig.taken("c") == rig.taken("d") == whole
    assert rig.credit("c", 1) == whole


def test_acknowledging_any_part_of_a_list_acknowledges_it_all(rig):
    """It was one thing to its consumer: half of it must never come again."""
    rig.consume("c", "lists")
    _send(rig, 1, 2, 3)
    rig.acknowledge("c", "g1")
    line = rig.line("lists")
    assert line.out_count == line.waiting_count == 0
    rig.boot()
    assert rig.consume("c", "lists") == []


def test_a_list_that_comes_back_comes_back_whole(rig):
    """Failed, released or lost with its consumer."""
    rig.consume("c", "lists", credit=1)
    _send(rig, 2, 3, 1)
    rig.give_back("c", Return.FAILED, "g1")
    assert rig.credit("c") == [["g1", "g2", "g3"], ["g1", "g2", "g3"]]
    rig.lose(1)
    assert rig.consume("d", "lists", connection=2) == [["g1", "g2", "g3"]]


def test_a_rolled_back_list_comes_again_whole_and_a_committed_one_is_gone(rig):
    """In a transaction the list is one receipt."""
    rig.consume("c", "lists", session=TRANSACTED)
    _send(rig, 1, 2, 3)
    rig.acknowledge("c", "g1")
    rig.rollback()
    assert rig.taken("c") == [["g1", "g2", "g3"]] * 2
    connection, handle = rig.consumers["c"]
    ids = [m.id for m in rig.got[connection, handle]]
    assert not ids
    rig.boot()
    assert rig.consume("d", "lists", session=TRANSACTED) == [["g1", "g2", "g3"]]
    rig.acknowledge("d", "g1")
    rig.commit()
    assert rig.line("lists").size_bytes == 0


def test_what_a_transaction_sends_completes_a_list_when_it_commits(rig):
    """Before that nobody may see it."""
    rig.consume("c", "lists")
    _send(rig, 1, 2)
    _send(rig, 3, session=TRANSACTED)
    assert rig.taken("c") == []
    rig.commit()
    assert rig.taken("c") == [["g1", "g2", "g3"]]


def test_a_list_survives_a_crash_half_complete_or_half_delivered(rig):
    """It is told by its messages' own properties."""
    _send(rig, 1, 2)
    rig.boot()
    rig.consume("c", "lists")
    _send(rig, 3)
    assert rig.taken("c") == [["g1", "g2", "g3"]]
    rig.boot()
    assert rig.consume("d", "lists") == [["g1", "g2", "g3"]]


def test_a_list_that_never_completes_becomes_dead_letters_with_their_reason(rig):
    """Its messages must not wait for ever where the operator set a time (P9)."""
    _send(rig, 1, 3)
    rig.pass_time(9_999)
    assert _letters(rig) == {}
    rig.pass_time(1)
    assert _letters(rig) == {"g1": "GROUP_INCOMPLETE", "g3": "GROUP_INCOMPLETE"}
    assert rig.line("lists").counters.dead_lettered == 2
    assert rig.line("lists").groups.gathering.incomplete_count == 1


def test_the_time_of_a_list_goes_on_over_a_restart(rig):
    """It counts from the first message, not from the boot."""
    _send(rig, 1)
    rig.now_ms += 9_000
    rig.boot()
    rig.pass_time(1_000)
    assert _letters(rig) == {"g1": "GROUP_INCOMPLETE"}


def test_a_whole_list_has_no_end_of_its_time(rig):
    """The time is for completing it, not for being consumed."""
    _send(rig, 1, 2, 3)
    rig.pass_time(99_000)
    assert rig.consume("c", "lists") == [["g1", "g2", "g3"]]


def test_a_list_of_which_one_expires_is_no_list_any_more(rig):
    """The others can never go out whole: they are dead letters, and say why."""
    _send(rig, 1, 2)
    _send(rig, 3, ttl_ms=5)
    rig.pass_time(10)
    assert _letters(rig) == {"g1": "GROUP_INCOMPLETE", "g2": "GROUP_INCOMPLETE"}


@pytest.mark.parametrize("expiring", [1, 2, 3])
def test_a_list_that_was_out_when_one_expired_is_handed_out_no_more(rig, expiring):
    """Its consumer gives it back unseen; handed out again, it would come and go for ever."""
    for number in (1, 2, 3):
        _send(rig, number, ttl_ms=5 if number == expiring else 0)
    rig.consume("c", "lists")
    rig.now_ms += 6
    rig.give_back("c", Return.RELEASED, "g1")

    assert rig.taken("c") == []
    rig.pass_time(1_000)
    others = {f"g{number}" for number in (1, 2, 3) if number != expiring}
    assert _letters(rig) == dict.fromkeys(others, "GROUP_INCOMPLETE")
    line = rig.line("lists")
    assert line.waiting_count == line.out_count == line.held_count == 0
    assert line.counters.expired == 1


def test_one_that_fails_for_good_takes_its_list_along(rig):
    """The rest of it could not be handed out whole."""
    rig.consume("c", "lists", credit=1)
    _send(rig, 1, 3)
    _send(rig, 2, JMS_HMS_RedeliveryLimit=1)
    rig.give_back("c", Return.FAILED, "g1")
    assert _letters(rig) == dict.fromkeys(("g1", "g2", "g3"), "REDELIVERY_LIMIT")
    line = rig.line("lists")
    assert line.waiting_count == line.out_count == line.held_count == 0


def test_dead_letters_are_gathered_no_more(rig):
    """In the dead letter queue each must be there to be looked at."""
    _send(rig, 1)
    rig.pass_time(10_000)
    assert rig.consume("d", DEAD_LETTER_QUEUE) == ["g1"]


@pytest.mark.parametrize(
    ("properties", "detail"),
    [
        ({}, "no whole number"),
        ({"GROUP_NUMBERING": "1"}, "no whole number"),
        ({"GROUP_NUMBERING": 0}, "not 1 to 1000"),
        ({"GROUP_NUMBERING": 1001}, "not 1 to 1000"),
        ({"GROUP_NUMBERING": 2}, "a number 2 already"),
        ({"GROUP_NUMBERING": 1, "GROUP_END": True}, "a number 2 behind its end"),
        ({"GROUP_NUMBERING": 3, "GROUP_END": "yes"}, "not a boolean"),
    ],
)
def test_what_can_be_part_of_no_list_is_refused(rig, properties, detail):
    """Taken, it would wait for ever, or make a list with two of the same number."""
    _send(rig, 2)
    with pytest.raises(hms.GroupMessageInvalid, match=detail):
        rig.send("x", "lists", GROUP_NAME="g", **properties)
    assert rig.waiting("lists") == ["g2"]


def test_nothing_can_stand_behind_the_end_of_a_list(rig):
    """The list would be handed out without it."""
    _send(rig, 2, end=2)
    for number, end in ((3, 0), (3, 3)):
        with pytest.raises(hms.GroupMessageInvalid, match="ends with number 2"):
            _send(rig, number, end=end)


def test_a_name_can_be_used_again_when_its_list_is_whole(rig):
    """A sender that begins anew each day needs no new names."""
    _send(rig, 1, 2, 3)
    _send(rig, 1, 2, 3)
    assert rig.consume("c", "lists") == [["g1", "g2", "g3"]] * 2


def test_a_number_that_is_taken_when_a_transaction_commits_begins_another_list(rig):
    """A commit cannot be refused for it any more; nothing is lost, and no list is mixed."""
    _send(rig, 1, session=TRANSACTED)
    _send(rig, 1)
    rig.commit()
    _send(rig, 2, 3)
    assert rig.consume("c", "lists") == [["g1", "g2", "g3"]]
    rig.pass_time(10_000)
    assert _letters(rig) == {"g1": "GROUP_INCOMPLETE"}


def test_other_queues_pass_such_messages_one_by_one(rig):
    """PASS is the default: the properties mean nothing there."""
    rig.consume("c")
    rig.send("x", GROUP_NAME="g", GROUP_NUMBERING=7)
    assert rig.taken("c") == ["x"]


def test_a_consumer_that_acknowledges_nothing_gets_whole_lists(rig):
    """With ack mode NONE the list is settled while it is handed out."""
    _send(rig, 1, 2, 3)
    _send(rig, 3, 2, 1)
    assert rig.consume("c", "lists", session=NONE) == [["g1", "g2", "g3"]] * 2
    assert rig.line("lists").out_count == 0


def test_a_list_of_the_largest_size_is_settled_by_one_record(rig):
    """A torn log must not keep half of it."""
    rig.consume("c", "lists")
    for number in range(1, 1001):
        _send(rig, number, end=1000)
        rig.send("between", "plain")
    assert len(rig.taken("c")[0]) == 1000
    before = len(rig.log)
    rig.acknowledge("c")
    assert len(rig.log) == before + 1


def test_a_message_of_a_list_that_is_sent_for_later_completes_it_then(rig):
    """Before its time it is nowhere."""
    rig.consume("c", "lists")
    _send(rig, 3, delay_ms=100)
    _send(rig, 1, 2)
    assert rig.taken("c") == []
    rig.pass_time(100)
    assert rig.taken("c") == [["g1", "g2", "g3"]]


def test_purging_takes_incomplete_lists_too(rig):
    """The operator empties the queue."""
    _send(rig, 1, 2)
    rig.run(lambda fx: rig.engine.administer("queue.purge", {"name": "lists"}, rig.now_ms, fx))
    assert rig.line("lists").waiting_count == rig.line("lists").held_count == 0
    _send(rig, 1, 2, 3)
    assert rig.consume("c", "lists") == [["g1", "g2", "g3"]]


def test_parts_of_a_list_that_is_not_whole_are_told_from_what_may_be_received(rig):
    """Who asks why nothing comes though messages wait."""

    def states(state="", queue="lists"):
        answers = []
        asked = {"place": f"queue:{queue}", "state": state}

        def ask(fx):
            answers.append(rig.engine.administer("message.list", asked, rig.now_ms, fx))

        rig.run(ask)
        return [row["state"] for row in answers[0]["messages"]]

    _send(rig, 1, 3)
    _send(rig, 1, 2, end=2, name="h")
    rig.send("alone", "lists")
    assert states() == ["incomplete"] * 2 + ["waiting"] * 3
    assert states("incomplete") == ["incomplete"] * 2
    assert states("waiting") == states()
    assert states("delayed") == []
    assert states("incomplete", DEAD_LETTER_QUEUE) == []
    _send(rig, 2)
    assert states("incomplete") == []
    assert states() == ["waiting"] * 6
