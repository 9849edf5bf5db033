"""The benches of schedules and of file messages at a size that a test has time for."""

from bench import file_message, schedules


def test_schedules_are_sent_once_and_none_early_while_the_clock_is_set():
    """Two kills, and the clock set by an hour each way: every message once, none early."""
    outcome = schedules.run(count=500, schedules=10, window_s=6.0)

    assert outcome.delayed == 500
    assert outcome.occurrences > 10
    assert (outcome.missing, outcome.doubled, outcome.early) == (0, 0, 0)


def test_a_large_file_comes_whole_through_a_killed_node_in_little_memory():
    """The file is larger than what its sender, its receiver and the node may take together."""
    outcome = file_message.run(mib=200, limit_mib=96)

    assert outcome.is_whole
    assert outcome.kills >= 1
    peaks = (outcome.sender_peak_mib, outcome.receiver_peak_mib, outcome.node_peak_mib)
    assert max(peaks) < 128
