"""Where a log is written: whole lines, and nothing that a full disk could stop."""

import logging
import os

import pytest

from hms.client.core.equal_events import EQUAL_MAX, EqualEvents
from hms.client.core.log_output import PAYLOADS_VARIABLE, LogOutput, _Printed, await_end_of_node


@pytest.fixture
def full():
    """A descriptor for which there is never room."""
    fd = os.open("/dev/full", os.O_WRONLY)
    yield fd
    os.close(fd)


def sayer(output):
    """Its handler is told alone: a logger would be everybody's."""

    def say(level, text, *arguments):
        output.handle(logging.LogRecord("hms.test", level, "", 0, text, arguments, None))

    return say


def goes_on_in(fd, path):
    new = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(new, fd)
    os.close(new)


def test_a_full_disk_is_no_error_and_its_lines_are_counted_and_told_once(full, tmp_path):
    """What cannot be written is not kept either: the memory would be full next."""
    output = LogOutput(full)
    say = sayer(output)
    for n in range(3):
        say(logging.WARNING, "line %d", n)
    assert output.dropped == 3
    goes_on_in(full, tmp_path / "log")
    output.look()
    output.look()
    say(logging.WARNING, "room")
    assert (tmp_path / "log").read_text().splitlines() == [
        "3 lines were not written: No space left on device",
        "room",
    ]
    assert output.dropped == 3


def test_a_line_that_was_cut_is_continued_before_the_next_one():
    """The pipe has room for its begin only."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    output = LogOutput(writer)
    say = sayer(output)
    long = "x" * 200_000
    say(logging.WARNING, long)
    say(logging.WARNING, "not taken")
    assert output.has_rest
    data = os.read(reader, 1 << 20)
    output.look()
    while output.has_rest:
        data += os.read(reader, 1 << 20)
        output.look()
    data += os.read(reader, 1 << 20)
    assert data.decode().splitlines()[0] == long
    assert "1 lines were not written" in data.decode().splitlines()[1]
    os.close(reader)
    os.close(writer)


def test_equal_events_are_summarised(tmp_path):
    """A fault that comes a thousand times a second is one line that says so; DEBUG is asked for,
    and is whole."""
    now = [0.0]
    fd = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    say = sayer(LogOutput(fd, EqualEvents(lambda: now[0])))
    for n in range(100):
        say(logging.WARNING, "peer %d is lost", n)
        say(logging.DEBUG, "asked for %d", n)
    say(logging.WARNING, "something else")
    now[0] = 1.0
    say(logging.WARNING, "peer %d is lost", 100)
    lines = (tmp_path / "log").read_text().splitlines()
    debug = [line for line in lines if line.startswith("asked")]
    others = [line for line in lines if not line.startswith("asked")]
    assert len(debug) == 100
    assert others[EQUAL_MAX:] == [
        "something else",
        "90 more like this within a second, the last: peer 99 is lost",
        "peer 100 is lost",
    ]
    os.close(fd)


def test_the_end_of_a_process_leaves_no_count_untold(tmp_path):
    """Its last second is the one that matters."""
    fd = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    output = LogOutput(fd, EqualEvents(lambda: 0.0))
    say = sayer(output)
    for n in range(EQUAL_MAX + 2):
        say(logging.ERROR, "failed %d", n)
    output.flush()
    output.flush()
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[EQUAL_MAX:] == ["2 more like this within a second, the last: failed 11"]
    os.close(fd)


def test_many_texts_are_not_remembered_for_ever():
    """Who makes its text before it logs has as many events as texts."""
    now = [0.0]
    equal = EqualEvents(lambda: now[0])
    for n in range(5000):
        now[0] += 0.01
        assert equal.admits(logging.LogRecord("x", logging.INFO, "", 0, f"text {n}", (), None))
    assert len(equal._events) <= 1000


def test_what_a_service_prints_is_no_error_of_it_when_the_disk_is_full(full, tmp_path):
    """And a line that was cut there is ended before the next one."""
    printed = _Printed(full, "wb", closefd=False)
    assert printed.write(b"dropped\n") == 8
    printed._is_cut = True
    goes_on_in(full, tmp_path / "log")
    assert printed.write(b"kept\n") == 5
    assert (tmp_path / "log").read_text() == "\nkept\n"


def test_a_server_hears_the_last_file_that_it_is_told(monkeypatch):
    """Also when its name comes in two parts, and when the node ends in the midst of it."""
    told = []
    monkeypatch.setattr("hms.client.core.log_output.begin_file", told.append)
    reader, writer = os.pipe()
    os.write(writer, b"/a/N1.log\n/b/N1.log\n/c/N")
    os.close(writer)
    await_end_of_node(reader)
    os.close(reader)
    assert told == ["/b/N1.log"]


def test_a_server_hears_whether_it_may_log_payloads(monkeypatch):
    """Between names of files, which it hears too."""
    told = []
    monkeypatch.setattr("hms.client.core.log_output.begin_file", told.append)
    monkeypatch.setenv(PAYLOADS_VARIABLE, "")
    for words, shown in ((f"{PAYLOADS_VARIABLE}=1\n/a\n", "1"), (f"{PAYLOADS_VARIABLE}=\n", "")):
        reader, writer = os.pipe()
        os.write(writer, words.encode())
        os.close(writer)
        await_end_of_node(reader)
        os.close(reader)
        assert os.environ[PAYLOADS_VARIABLE] == shown
    assert told == ["/a"]
