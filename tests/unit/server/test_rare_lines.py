"""What a stranger can cause again and again does not fill the log."""

from hms.server.rare_lines import LINES_MAX, PERIOD_S, RareLines
from hms.wire import structures as wire
from hms.wire.frames import Kind
from tests.support.hello import hello_of
from tests.support.memory_peer import Node


def test_so_many_lines_are_written_and_the_next_period_says_how_many_were_not():
    """Nothing is left out silently."""
    lines, events, now = [], [], [1000.0]

    def write(text, *words, extra=None):
        lines.append(text % words)
        events.append(extra)

    rare = RareLines(write, lambda: now[0])
    for number in range(LINES_MAX + 7):
        rare.say("line %d", number)
    assert lines == [f"line {number}" for number in range(LINES_MAX)]

    now[0] += PERIOD_S
    rare.say("line %s", "later")

    assert lines[LINES_MAX:] == ["7 lines like the next one were left out", "line later"]
    assert events[LINES_MAX:] == [{"event": "lines_left_out"}, None]


def test_a_client_that_asks_for_the_same_refusal_for_ever_does_not_fill_the_log(tmp_path, caplog):
    """One connection that announced files for which there is no room wrote 2 MB in 5 s."""
    node = Node(tmp_path / "files")
    node.send("greedy", Kind.HELLO, wire.encode(hello_of(1)))
    for handle in range(1, 3 * LINES_MAX):
        request = wire.encode(wire.OpenFile(handle, 1 << 40))
        ((envelope, _),) = node.send("greedy", Kind.REQUEST, request)
        assert envelope.kind is Kind.ERROR

    assert [one.name for one in caplog.records].count("hms.spool") == LINES_MAX
