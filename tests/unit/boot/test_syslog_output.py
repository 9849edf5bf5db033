"""Lines for the machine's system log: datagrams that nobody waits for."""

import logging
import socket
from contextlib import closing

from hms.boot.syslog_output import LINE_MAX, SyslogOutput


def say(output, level, text):
    output.handle(logging.LogRecord("hms.test", level, "", 0, text, (), None))


def listening_at(path):
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ear.bind(str(path))
    ear.settimeout(0)
    return ear


def heard(ear):
    lines = []
    try:
        while True:
            lines.append(ear.recv(1 << 16).decode())
    except BlockingIOError:
        return [line.partition(": ")[2] for line in lines], lines


def test_a_line_is_a_datagram_with_its_severity(tmp_path):
    """No line break of a stranger's makes two of it, and none is too long for who takes it."""
    output = SyslogOutput(str(tmp_path / "log"))
    with closing(listening_at(tmp_path / "log")) as ear:
        say(output, logging.ERROR, "a\nb")
        say(output, logging.INFO, "x" * 20_000)
        texts, lines = heard(ear)
    output.close_socket()
    assert texts == ["a b", "x" * LINE_MAX]
    assert lines[0].startswith("<27>hms[")
    assert lines[1].startswith("<30>hms[")


def test_a_system_log_that_is_away_or_full_stops_nobody_and_hears_how_many_it_missed(tmp_path):
    """It is started anew under the same name; its buffer has room for some datagrams only."""
    path = tmp_path / "log"
    output = SyslogOutput(str(path))
    say(output, logging.ERROR, "before it was there")
    with closing(listening_at(path)) as ear:
        say(output, logging.ERROR, "first")
        assert heard(ear)[0] == ["1 lines were not written: No such file or directory", "first"]
    path.unlink()
    say(output, logging.ERROR, "while it is gone")
    with closing(listening_at(path)) as ear:
        count = 0
        while output.dropped < 3:  # nobody reads
            say(output, logging.CRITICAL, "flood")
            count += 1
        texts, _ = heard(ear)
        output.look()
        assert "1 lines were not written" in texts[0]
        assert texts.count("flood") == count - 1
        texts += heard(ear)[0]
        assert texts[-1] == "1 lines were not written: Resource temporarily unavailable"
    output.close_socket()
