"""Copies of a log whose segments are sealed early, as by a backup that is shipped every minute."""

from pathlib import Path

from hms.history.seals import seal
from hms.store.journal.store_examination import examine
from tests.acceptance.ha_rig import WAIT_S, bodies, connect
from tests.acceptance.pair_rig import arbiter, pair, readable
from tests.support.waiting import wait_until

SEGMENT_BYTES = 1 << 20
NODE = {
    "segment_bytes": SEGMENT_BYTES,
    "max_transaction_bytes": 1 << 18,
    "max_message_bytes": 1 << 17,
}
ROUNDS = 14


def history(one):
    """The segments that only the history of a machine keeps, as far as they keep their names."""
    found = {}
    for file in Path(one.store).glob("*.history"):
        try:
            found[file.name] = file.read_bytes()
        except FileNotFoundError:
            continue
    return found


def test_a_copy_has_of_what_was_sealed_early_what_its_primary_has(tmp_path):
    """To the byte, and no more: its disk must not fill before the primary's; after a take-over all
    is there and whole."""
    with arbiter(tmp_path) as decided_by, pair(tmp_path, decided_by, node=NODE) as two:
        two.boot()
        with connect(two.a) as connection, connection.session() as session:
            producer, consumer = session.producer("orders"), session.consumer("orders")
            for number in range(ROUNDS):
                producer.send(b"%d" % number)
                assert consumer.receive(WAIT_S) is not None
                seal(connection)
            consumer.close()
            producer.send(b"last")

        wait_until(lambda: len(history(two.a)) > ROUNDS // 2, WAIT_S)
        wait_until(lambda: history(two.a) == history(two.b), WAIT_S)
        assert max(map(len, history(two.b).values())) < SEGMENT_BYTES / 8
        two.wait_for_both()
        two.a.kill()
        assert bodies(two.b) == [b"last"]
        sent = [*(b"%d" % number for number in range(ROUNDS)), b"last"]
        wait_until(lambda: readable(two.b) == sent, WAIT_S)
        two.b.stop()
        for one in two.machines:
            assert examine(one.store).damages == []
