"""Open transactions: their memory has a bound, and ending them gives it back (P8)."""

import pytest

import hms
from hms.engine.flow.open_transactions import STEP_BYTES, open_bytes
from hms.wire.packed_messages import ROW, pack_messages
from tests.support.engine_rig import EngineRig

LIMIT = 1 << 20


def _send(rig, number, size, sequence):
    pack = memoryview(pack_messages([(ROW.pack(0, size, 0, 0, 4, 0, 0, 0), b"", b"x" * size)]))
    handle, persistent = 1000 + number, True
    rig.run(lambda fx: rig.engine.send(1, 5, handle, sequence, 1, persistent, pack, rig.now_ms, fx))


def _transactions(rig, numbers):
    for number in numbers:
        rig.engine.open_session(1, number, 0, "transacted")
        rig.run(
            lambda fx, n=number: rig.engine.open_producer(1, 1000 + n, n, "queue", "orders", "", fx)
        )


@pytest.mark.parametrize("size", [STEP_BYTES, 7 * STEP_BYTES, 1000])
def test_open_transactions_stay_within_the_memory_of_the_node(size):
    """60 sessions held 1.8 GiB with max_memory_bytes of 64 MiB."""
    rig = EngineRig(memory_bytes_max=LIMIT, transaction_bytes_max=LIMIT)
    _transactions(rig, range(10, 18))
    refused = []
    for number in range(10, 18):
        for sequence in range(1, 1 + LIMIT // size):
            try:
                _send(rig, number, size, sequence)
            except hms.NodeFull as error:
                refused.append(error)
                break
            except hms.TransactionTooLarge:
                break

    assert refused
    assert open_bytes(rig.engine.state) <= LIMIT + 8 * STEP_BYTES


@pytest.mark.parametrize("way", ["rollback", "close_session", "commit"])
def test_a_transaction_that_ends_makes_room_for_others(way):
    """What is told as full has to become free by the means that the error names."""
    rig = EngineRig(memory_bytes_max=LIMIT, transaction_bytes_max=LIMIT)
    _transactions(rig, (10, 11))
    _send(rig, 10, LIMIT // 2, 1)
    with pytest.raises(hms.NodeFull):
        _send(rig, 11, LIMIT * 3 // 4, 1)

    if way == "rollback":
        rig.run(lambda fx: rig.engine.rollback(1, 10, 6, rig.now_ms, fx))
    elif way == "close_session":
        rig.run(lambda fx: rig.engine.close_session(1, 10, rig.now_ms, fx))
    else:
        rig.run(lambda fx: rig.engine.commit(1, 10, 6, 1, rig.now_ms, fx))
        assert open_bytes(rig.engine.state) == 0
        return

    _send(rig, 11, LIMIT * 3 // 4, 1)
