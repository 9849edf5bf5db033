"""Who led the copies of a log: the log knows it, however much of it is gone."""

from hms.engine.settings import DestinationSettings, EngineSettings
from tests.support.journal_node import JournalNode

SETTINGS = EngineSettings(
    destinations=(DestinationSettings("queue", "orders"), DestinationSettings("topic", "news"))
)
ROUNDS = 1000
STEPS = [
    ("a", False, (0, 0)),  # the first one takes nothing over
    ("a", False, (0, 0)),  # it was booted again, or other copies count
    ("b", False, (1, 0)),
    ("b", True, (1, 0)),
    ("a", True, (1, 1)),
    ("c", False, (2, 1)),
]


def told(node, leader, *, is_planned):
    node.run(
        lambda fx, now_ms: node.engine.configured("", leader, now_ms, fx, is_planned=is_planned)
    )
    return node.engine.terms.take_overs, node.engine.terms.switchovers


def test_another_leader_is_counted_once_in_each_life(tmp_path):
    """What a process counted alone would be gone with each take-over."""
    for leader, is_planned, counts in STEPS:
        node = JournalNode(tmp_path, SETTINGS)
        assert told(node, leader, is_planned=is_planned) == counts
        assert told(node, leader, is_planned=is_planned) == counts
        node.close()


def test_the_counts_outlive_the_segment_in_which_they_were_told(tmp_path):
    """Each segment opens with them: the log is a ring."""
    node = JournalNode(tmp_path, SETTINGS)
    node.open_client()
    node.consume()
    for leader, is_planned, _ in STEPS:
        told(node, leader, is_planned=is_planned)
    first = min(tmp_path.glob("*.log"))
    for batch in range(ROUNDS):
        if not first.exists():
            break
        node.publish(1 + 8 * batch, [bytes(500)] * 8)
        while out := node.credit(0):
            node.acknowledge(out)
            node.credit(len(out))
        node.tick()
    assert not first.exists()
    node.close()

    node = JournalNode(tmp_path, SETTINGS)

    assert told(node, "c", is_planned=False) == (2, 1)
    node.close()
