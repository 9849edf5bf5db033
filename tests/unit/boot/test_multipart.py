"""Forms with a file: read in blocks of any size, and every fault of one is told."""

import io

import pytest

from hms.boot.web.http_server import Body
from hms.boot.web.multipart import MultipartError, read_posted

KIND = "multipart/form-data; boundary=xYx"


class Slow(io.BytesIO):
    """Gives so many bytes at a time."""

    def __init__(self, data, step):
        super().__init__(data)
        self.step = step

    def read(self, count):
        return super().read(min(count, self.step))


def posted(data, kind=KIND, step=1 << 20, bytes_max=1 << 20):
    into, seen = io.BytesIO(), {}

    def take(fields):
        seen.update(fields)
        return into

    found = read_posted(Body(Slow(data, step), len(data), kind), bytes_max, take)
    return found, seen, into.getvalue()


def part(head, data):
    return b"--xYx\r\nContent-Disposition: form-data; " + head + b"\r\n\r\n" + data + b"\r\n"


TEXT = part(b'name="token"', "café".encode()) + part(b'name="empty"', b"")
FILE = part(b'name="file"; filename="../x.jsonl"\r\nContent-Type: a/b', b"\r\n--xY\r\n\0\r\n")
END = b"--xYx--\r\n"


@pytest.mark.parametrize("step", [1, 2, 3, 7, 64, 1 << 20])
def test_fields_and_file_are_what_was_sent_however_they_come(step):
    """A delimiter may be cut anywhere, and what looks like its beginning belongs to the file."""
    found, seen, data = posted(TEXT + FILE + END, step=step)
    assert seen == {"token": "café", "empty": ""}
    assert (found.fields, found.file, found.length) == (seen, "../x.jsonl", len(data))
    assert data == b"\r\n--xY\r\n\0\r\n"
    assert posted(TEXT + END, step=step)[0].length == 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        END,
        TEXT[:5],
        TEXT,
        TEXT + FILE,
        TEXT + FILE[:-9],
        b"x\r\n" + TEXT + END,
        TEXT + FILE + FILE + END,
        TEXT * 2 + END,
        b"".join(part(b'name="%d"' % n, b"") for n in range(21)) + END,
        FILE + TEXT + END,
        part(b'nothing="x"', b"") + END,
        part(b'name="x"', b"x" * 5000) + END,
        b"--xYx\r\nX: " + b"x" * 5000 + b"\r\n\r\n" + END,
        TEXT + b"--xYxz\r\n" + END,
    ],
)
def test_what_is_no_form_or_ends_early_is_told(data):
    """And nothing of it is taken for whole."""
    if data == END:
        assert posted(data)[0].fields == {}
        return
    with pytest.raises(MultipartError):
        posted(data)


def test_a_file_has_a_longest():
    """Told as soon as it is longer."""
    with pytest.raises(MultipartError, match="1 MiB"):
        posted(TEXT + part(b'name="f"; filename="f"', b"x" * (2 << 20)) + END, step=1 << 10)
    for kind in ("multipart/form-data", "text/plain; boundary=", f"x; boundary={'y' * 71}"):
        with pytest.raises(MultipartError):
            posted(TEXT + END, kind=kind)
