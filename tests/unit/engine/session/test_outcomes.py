"""Outcomes: what is in doubt is asked of the log, and the answer never changes."""

import pytest
from msgspec.structs import replace

from hms.engine.effects import Refusal, Reply
from hms.errors import SendInDoubt, SendWithdrawn, TransactionRolledBack
from hms.wire.outcome_tokens import Token
from hms.wire.packed_messages import ROW, Head, encode_head, pack_messages
from tests.support.engine_rig import EngineRig

UID = 77
SEND = Token(b"", UID, "", is_commit=False, handle=1, number=1, count=3, frame_count=3)
COMMIT = Token(b"", UID, "", is_commit=True, handle=2, number=1)


def outcome(rig, asked):
    """The answer; its record goes to the log."""
    found = []
    fx = rig.run(lambda fx: found.append(rig.engine.outcome(asked, rig.now_ms, fx)))
    assert fx.must_wait
    return found[0]["outcome"]


def send(rig, first, count=3, producer=1):
    """A batch of that first sequence number."""
    head = encode_head(Head({}))
    pack = memoryview(
        pack_messages([(ROW.pack(len(head), 1, 0, 0, 4, 0, 0, 0), head, b"x")] * count)
    )
    how = {"is_persistent": True, "pack": pack, "now_ms": rig.now_ms}
    return rig.run(lambda fx: rig.engine.send(1, 5, producer, first, count, fx=fx, **how))


def commit(rig, number):
    return rig.run(lambda fx: rig.engine.commit(1, 2, 9, number, rig.now_ms, fx))


def waiting(rig):
    return len(rig.browse().messages)


def test_what_is_there_is_stored_and_has_its_ids(rig):
    """Also for a part of the frame."""
    send(rig, 1)
    ids = [message.id for message in rig.browse().messages]
    asked = replace(SEND, offset=1, count=2)
    answers = []
    rig.run(lambda fx: answers.append(rig.engine.outcome(asked, rig.now_ms, fx)))

    assert answers == [{"outcome": "STORED", "first": ids[1], "count": 2}]


def test_what_is_not_there_is_withdrawn_for_good(rig):
    """A late frame is refused, before and after a crash; later frames are stored."""
    assert outcome(rig, SEND) == "WITHDRAWN"
    with pytest.raises(SendWithdrawn):
        send(rig, 1)
    rig.start()

    assert outcome(rig, SEND) == "WITHDRAWN"
    with pytest.raises(SendWithdrawn):
        send(rig, 1)
    send(rig, 4)
    assert waiting(rig) == 3


def test_a_withdrawal_outlives_the_segment_that_it_was_written_to(rig):
    """The memory is told again before a segment goes."""
    outcome(rig, SEND)
    rig.log.clear()
    rig.run(lambda fx: rig.engine.restate(rig.engine.remembered(), fx))
    rig.start()

    assert outcome(rig, SEND) == "WITHDRAWN"
    with pytest.raises(SendWithdrawn):
        send(rig, 1)


def test_nobody_says_no_of_what_was_forgotten():
    """The window of a producer, and the producers that are remembered, are limited."""
    rig = EngineRig(frames_in_flight_max=2)
    for first in (1, 4, 7):
        send(rig, first)
    assert outcome(rig, SEND) == "FORGOTTEN"
    with pytest.raises(SendInDoubt):
        send(rig, 1)

    rig.engine.state.memories.has_forgotten = True
    assert outcome(rig, replace(SEND, handle=500)) == "FORGOTTEN"
    assert outcome(rig, replace(COMMIT, handle=500)) == "FORGOTTEN"


def test_a_withdrawal_below_the_window_is_not_claimed():
    """It would be forgotten at once, and then it could be said to be something else."""
    rig = EngineRig(frames_in_flight_max=2)
    for first in (4, 7):
        send(rig, first)

    assert [outcome(rig, SEND) for _ in range(2)] == ["FORGOTTEN", "FORGOTTEN"]


def test_what_the_log_would_not_have_is_not_said_to_be_withdrawn(rig):
    """A message that is not persistent may have been delivered before a crash."""
    assert outcome(rig, replace(SEND, is_logged=False)) == "FORGOTTEN"
    send(rig, 1)
    assert outcome(rig, replace(SEND, is_logged=False)) == "STORED"


@pytest.mark.parametrize("is_doubtful", [False, True])
def test_a_producer_with_sends_in_doubt_is_remembered_when_it_is_closed(rig, is_doubtful):
    """Else what it had stored would be said to be withdrawn."""
    send(rig, 1)
    rig.engine.close_session(1, 1, rig.now_ms, rig.run(lambda _: None), is_doubtful=is_doubtful)

    assert (outcome(rig, SEND) == "STORED") is is_doubtful


def test_a_send_that_waits_for_room_is_withdrawn_too(rig):
    """It stands in line when somebody asks, and is refused when its turn comes."""
    rig = EngineRig(memory_bytes_max=1 << 20)
    rig.run(lambda fx: rig.engine.administer("queue.pause", {"name": "orders"}, rig.now_ms, fx))
    fx = send(rig, 1)
    assert not fx.out
    assert outcome(rig, SEND) == "WITHDRAWN"
    rig.run(lambda fx: rig.engine.administer("queue.resume", {"name": "orders"}, rig.now_ms, fx))
    fx = rig.run(lambda fx: rig.engine.retry_blocked(rig.now_ms, fx))

    assert [type(one.error) for one in fx.out if isinstance(one, Refusal)] == [SendWithdrawn]
    assert waiting(rig) == 0


def test_a_commit_that_took_effect_is_committed(rig):
    """Also after further ones, and after a crash."""
    for number in (1, 2):
        send(rig, 1, producer=11)
        commit(rig, number)
    assert outcome(rig, COMMIT) == "COMMITTED"
    rig.start()

    assert [outcome(rig, replace(COMMIT, number=n)) for n in (1, 2)] == ["COMMITTED"] * 2


def test_a_commit_that_did_not_arrive_never_takes_effect(rig):
    """A late copy rolls back what was done; the next one works, and changes no answer."""
    send(rig, 1, producer=11)
    assert outcome(rig, COMMIT) == "ROLLED_BACK"
    fx = commit(rig, 1)
    assert [type(one.error) for one in fx.out] == [TransactionRolledBack]
    assert waiting(rig) == 0

    send(rig, 1, producer=11)
    fx = commit(rig, 2)

    assert [type(one) for one in fx.out] == [Reply]
    assert outcome(rig, COMMIT) == "ROLLED_BACK"
    rig.start()
    assert outcome(rig, COMMIT) == "ROLLED_BACK"
    assert outcome(rig, replace(COMMIT, number=2)) == "COMMITTED"


def test_commits_that_took_no_effect_are_remembered_between_those_that_did(rig):
    """Numbers that a client used while it was at another node, or that were refused."""
    for number in (1, 4, 200):
        send(rig, 1, producer=11)
        commit(rig, number)
    rig.start()
    states = {n: outcome(rig, replace(COMMIT, number=n)) for n in (1, 3, 4, 100, 199, 200)}

    assert states == {
        **dict.fromkeys((1, 3, 4, 100), "FORGOTTEN"),
        199: "ROLLED_BACK",
        200: "COMMITTED",
    }
