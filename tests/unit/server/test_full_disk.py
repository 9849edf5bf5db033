"""A full disk: what waits is delivered and acknowledged, the node boots, space comes back (P10)."""

import pytest

from hms.engine.queue.settlement import Return
from hms.engine.settings import DestinationSettings, EngineSettings
from hms.history.audit_trail import entries_of_log
from hms.records.audit import AuditEntry
from hms.server.broker import INTERNAL, TICK
from hms.store.journal.segment_manager import LogLimits
from tests.support.journal_node import JournalNode
from tests.support.small_disk import SmallDisk

SEGMENT = 26 << 10
SETTINGS = EngineSettings(
    message_bytes_max=12_000,
    transaction_bytes_max=12_000,
    frames_in_flight_max=4,
    destinations=(DestinationSettings("queue", "orders"), DestinationSettings("topic", "news")),
)
FILES = 12
SOME_BYTES = 4096
"""The lock's file, and the fraction of a file that is left."""


class Store:
    """A node on a small disk, or with a small limit, over several lives."""

    def __init__(self, path, *, is_limited=False, history_bytes=1 << 30):
        self.path = path
        self.most = FILES * SEGMENT + SOME_BYTES
        self.disk = SmallDisk(path, (1 << 40) if is_limited else self.most)
        limit = FILES * SEGMENT if is_limited else 0
        self.limits = LogLimits(log_bytes_max=limit, history_bytes_max=history_bytes)
        self.sequence = 1
        self.node = None
        self.boot()

    def boot(self):
        if self.node is not None:
            self.node.close()
        self.node = JournalNode(self.path, SETTINGS, SEGMENT, disk=self.disk, limits=self.limits)
        self.node.open_client()

    def tick(self):
        self.node.broker.handle(INTERNAL, [TICK])
        self.node.step()
        self.node.store.maintain()

    def fill(self, body, per_batch):
        """Send until it is refused; how many were sent."""
        sent = 0
        while self.node.store.sends_refused() is None:
            self.node.publish(self.sequence, [body] * per_batch)
            self.sequence += per_batch
            sent += per_batch
            assert sent < 100_000
        return sent

    def drain(self, most=1 << 30):
        """Receive and acknowledge one by one; how many there were."""
        node, count = self.node, 0
        out = node.consume(1, 1)
        while out and count < most:
            node.acknowledge(out)
            out = node.credit(1)
            count += 1
            if count % 50 == 0:
                assert self.disk.used <= self.most
        assert self.disk.used <= self.most
        return count


@pytest.mark.parametrize("is_limited", [False, True], ids=["disk", "max_log_bytes"])
@pytest.mark.parametrize("history_bytes", [0, 1 << 30], ids=["no history", "history"])
@pytest.mark.parametrize(("size", "per_batch"), [(50, 20), (500, 8), (11_000, 1)])
def test_all_that_waits_on_a_full_disk_is_acknowledged_and_sending_goes_on(
    tmp_path, size, per_batch, history_bytes, is_limited
):
    """Acknowledgements of small messages take more than the messages, and cleaning takes space."""
    store = Store(tmp_path, is_limited=is_limited, history_bytes=history_bytes)
    first = store.fill(bytes(size), per_batch)

    assert store.drain() == first
    for _ in range(3):
        store.tick()
    assert store.node.store.sends_refused() is None
    again = store.fill(bytes(size), per_batch)
    assert again > first // 2
    store.boot()
    assert store.drain() == again
    store.node.close()


@pytest.mark.parametrize("is_limited", [False, True], ids=["disk", "max_log_bytes"])
@pytest.mark.parametrize(("size", "per_batch"), [(500, 8), (11_000, 1)])
def test_senders_wait_as_long_as_room_is_being_made(
    tmp_path, monkeypatch, size, per_batch, is_limited
):
    """What was cleaned but not let go of yet counted as no reason to wait: a sender was told that
    the store is full while its space was about to come back."""
    store = Store(tmp_path, is_limited=is_limited)
    sent = store.fill(bytes(size), per_batch)
    node, journal, seen = store.node, store.node.store, []
    out = node.consume(1, sent)
    with monkeypatch.context() as patch:
        patch.setattr(node, "step", lambda: None)
        node.acknowledge(out)
    node.broker.lead()

    while journal.sends_refused():
        seen.append(journal.is_waiting_for_space)
        if not node.broker.lead():
            node.jobs.pop(0)()

    assert seen
    assert all(seen)
    node.close()


def test_a_node_boots_on_a_full_disk_again_and_again(tmp_path):
    """A boot begins a segment: space for it is kept, and each boot gives it back."""
    store = Store(tmp_path)
    sent = store.fill(bytes(500), 8)
    store.disk.capacity = store.disk.used
    for _ in range(8):
        store.boot()
        assert store.drain(most=3) == 3
    store.boot()
    assert len(store.node.waiting()) == sent - 8 * 3
    store.node.close()


def test_space_comes_back_after_a_boot_without_any_traffic(tmp_path):
    """A node that was restarted because its disk was full must not stay full for ever."""
    store = Store(tmp_path, history_bytes=0)
    sent = store.fill(bytes(500), 8)
    assert store.drain() == sent
    store.boot()

    for _ in range(4):
        store.tick()

    assert store.node.store.sends_refused() is None
    store.node.close()


def test_messages_that_stay_do_not_keep_a_full_disk_full(tmp_path):
    """What waits long is moved, into space that is kept for it."""
    store = Store(tmp_path)
    node = store.node
    sent = store.fill(bytes(500), 8)
    out = node.consume(1, sent)
    for start in range(0, sent, 8):
        node.acknowledge(out[start + 1 : start + 8])
    for _ in range(6):
        store.tick()

    assert node.store.sends_refused() is None
    store.boot()
    assert len(store.node.waiting()) == -(-sent // 8)
    store.node.close()


def test_messages_that_are_given_back_again_and_again_do_not_stop_a_full_node(tmp_path):
    """Each round writes to the log, and nothing ever leaves."""
    store = Store(tmp_path, history_bytes=0)
    sent = store.fill(bytes(500), 8)
    for _ in range(3 * SEGMENT // 100):
        store.node.consume(1, 4)
        store.node.run(lambda fx, now: store.node.engine.close_consumer(1, 1, now, fx))
    assert len(store.node.waiting()) == sent
    assert store.drain() == sent
    store.node.close()


@pytest.mark.parametrize("files", [0, 1, 2, 3])
def test_a_full_log_is_cleaned_although_boots_have_taken_its_reserve(tmp_path, files):
    """A node that was killed in one boot after the other, before it had cleaned: it said for ever
    that its log was full, of one schedule of 200 bytes. The disk has space; only the limit is
    reached."""
    store = Store(tmp_path, is_limited=True)
    store.node.broker._housekeeping.run = lambda: None
    sent = store.fill(bytes(500), 8)
    out = store.node.consume(1, sent)
    store.node.acknowledge(out[1:])
    store.node.close()
    store.node = None
    for file in (*tmp_path.glob("*.reserve"), tmp_path / "spare.log"):
        file.unlink()
    store.limits = LogLimits(log_bytes_max=store.disk.used + files * SEGMENT)
    store.boot()
    assert store.node.store.sends_refused() is not None

    for _ in range(6):
        store.tick()

    assert store.node.store.sends_refused() is None
    assert len(store.node.waiting()) == 1
    store.node.close()


def test_a_purge_makes_room_after_all_else_that_is_written_on_a_full_disk(tmp_path):
    """Others have the rest of the disk; what is no send goes on being written, and must not use up
    what the purge and the cleaning behind it need."""
    store = Store(tmp_path, history_bytes=0)
    store.fill(bytes(500), 8)
    store.disk.capacity = store.most = store.disk.used
    node = store.node
    begun = node.store.newest_segment
    for n in range(200):
        for verb in ("queue.create", "queue.delete"):
            asked = {"name": f"q{n}"}
            node.run(lambda fx, now, v=verb, a=asked: node.engine.administer(v, a, now, fx))
        spans = [(m.id, m.id) for m in node.consume(7, 5)]
        node.run(
            lambda fx, now, s=spans: node.engine.give_back(1, 7, 0, s, Return.RELEASED, now, fx)
        )
        node.run(lambda fx, now: node.engine.close_consumer(1, 7, now, fx))
    assert node.store.sends_refused()
    assert node.store.newest_segment >= begun + 2

    node.run(lambda fx, now: node.engine.administer("queue.purge", {"name": "orders"}, now, fx))
    for _ in range(3):
        store.tick()

    assert node.store.sends_refused() is None
    assert store.fill(bytes(500), 8) > 50
    node.close()


def test_the_audit_of_segments_that_go_finds_room_on_a_full_disk(tmp_path):
    """Others had taken the last byte of the disk: for want of the few that its audit takes the
    history did not give way, and the node took nothing new for ever."""
    store = Store(tmp_path)
    node, sent = store.node, 0

    def audit(fx, now_ms):
        entry = AuditEntry(0, now_ms, "anna", "", "alter", "orders", "queue.alter", "", 0, 1, b"")
        node.engine.state.audit.append(entry, fx)

    while node.store.sends_refused() is None:
        node.run(audit)
        node.publish(store.sequence + sent, [bytes(500)] * 8)
        sent += 8
    store.disk.capacity = store.most = store.disk.used

    assert store.drain() == sent
    for _ in range(4):
        store.tick()

    assert node.store.sends_refused() is None
    numbers = [one.number for one in entries_of_log(tmp_path)]
    assert numbers == list(range(1, node.engine.state.audit.number + 1))
    node.close()
