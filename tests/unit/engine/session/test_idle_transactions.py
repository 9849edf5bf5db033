"""A local transaction in which nothing happens for long is rolled back at a tick."""

import pytest

from hms.engine.effects import Refusal, Reply
from hms.errors.catalogue import TransactionRolledBack
from tests.support.engine_rig import EngineRig, delivered

IDLE_MS = 5_000
ORDERS_IN_TRANSACTION = 11


@pytest.fixture
def rig():
    return EngineRig(transaction_idle_ms=IDLE_MS)


def _tick(rig, later_ms):
    rig.now_ms += later_ms
    return rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx))


def _commit(rig, number=1):
    (answer,) = rig.run(lambda fx: rig.engine.commit(1, 2, 9, number, rig.now_ms, fx)).out[-1:]
    return answer


def _waiting(rig):
    return rig.engine.state.queues["orders"].line


def test_what_was_received_in_it_goes_to_others_flagged_and_is_no_attempt(rig):
    """A client that hangs must not keep messages for ever, nor push them to the dead letters."""
    rig.send()
    messages = rig.consume(21, session=2, credit=1)
    rig.acknowledge(21, messages)
    assert rig.consume(22) == []

    came = delivered(_tick(rig, IDLE_MS))

    assert came == messages
    assert list(_waiting(rig).history.values()) == [(1, 0)]


def test_its_commit_says_so_and_the_next_transaction_is_a_new_one(rig):
    """Typed, with the reason; nothing of it takes effect."""
    rig.send(ORDERS_IN_TRANSACTION)
    _tick(rig, IDLE_MS)

    answer = _commit(rig)

    assert isinstance(answer, Refusal)
    assert isinstance(answer.error, TransactionRolledBack)
    assert "transaction_idle_s" in str(answer.error)
    assert _waiting(rig).waiting_count == 0
    rig.send(ORDERS_IN_TRANSACTION)
    assert isinstance(_commit(rig, 2), Reply)
    assert _waiting(rig).waiting_count == 1


def test_a_send_after_it_is_refused_until_the_application_rolls_back(rig):
    """Else it would begin a transaction that lacks its first half."""
    rig.send(ORDERS_IN_TRANSACTION)
    _tick(rig, IDLE_MS)

    with pytest.raises(TransactionRolledBack):
        rig.send(ORDERS_IN_TRANSACTION)

    rig.run(lambda fx: rig.engine.rollback(1, 2, 10, rig.now_ms, fx))
    rig.send(ORDERS_IN_TRANSACTION)
    assert isinstance(_commit(rig), Reply)
    assert _waiting(rig).waiting_count == 1


@pytest.mark.parametrize("how", ["commit", "rollback"])
def test_what_is_received_after_it_comes_again_too(rig, how):
    """It belongs to the transaction that is gone, and is no attempt either way."""
    rig.send(count=2)
    first, second = rig.consume(21, session=2)
    rig.acknowledge(21, [first])
    _tick(rig, IDLE_MS)
    rig.acknowledge(21, [second])

    if how == "commit":
        assert isinstance(_commit(rig), Refusal)
    else:
        rig.run(lambda fx: rig.engine.rollback(1, 2, 9, rig.now_ms, fx))

    line = _waiting(rig)
    assert line.out_count + line.waiting_count == 2
    assert {attempts for _, attempts in line.history.values()} == {0}
    assert not any("ACKNOWLEDGED" in str(kind) for kind, _ in rig.log[rig.booted_at :])


@pytest.mark.parametrize("what", ["send", "receipt"])
def test_any_work_in_it_begins_its_time_anew(rig, what):
    """Slow is not idle."""
    rig.send(count=2)
    messages = rig.consume(21, session=2)
    rig.send(ORDERS_IN_TRANSACTION)
    _tick(rig, IDLE_MS - 1)
    if what == "send":
        rig.send(ORDERS_IN_TRANSACTION)
    else:
        rig.acknowledge(21, messages[:1])

    _tick(rig, IDLE_MS - 1)

    assert isinstance(_commit(rig), Reply)


def test_a_session_without_work_is_never_idle(rig):
    """What is prefetched is no work: whoever waits in receive() does nothing wrong."""
    rig.send()
    rig.consume(21, session=2)

    fx = _tick(rig, 10 * IDLE_MS)

    assert delivered(fx) == []
    assert _waiting(rig).out_count == 1


def test_by_default_nothing_is_ended():
    """An application may think as long as it likes, unless its operator says otherwise."""
    rig = EngineRig()
    rig.send(ORDERS_IN_TRANSACTION)

    _tick(rig, 366 * 86_400_000)

    assert isinstance(_commit(rig), Reply)
