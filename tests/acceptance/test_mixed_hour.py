"""The mixed load, for seconds, on a real node (capability "Fast", must show 4)."""

import signal

import msgspec
import pytest

from bench.mixed import main
from bench.mixed_figures import Outcome

PLANTED_MS = 1000


@pytest.fixture(autouse=True)
def _own_signals():
    """main() takes SIGTERM for itself, and this process goes on."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_the_books_balance_and_a_planted_pause_is_found(tmp_path, monkeypatch, capsys):
    """An hour without a pause says something only if a pause would have been seen."""
    report = tmp_path / "found.json"
    words = f"--rate 200 --minutes 0.1 --row-s 2 --plant-pause-ms {PLANTED_MS} --data {tmp_path}"
    command = ["mixed", *words.split(), "--json", str(report)]
    monkeypatch.setattr("sys.argv", command)

    with pytest.raises(SystemExit) as ended:
        main()

    outcome = msgspec.json.decode(report.read_bytes(), type=Outcome)
    assert all(books.sent and books.is_balanced for books in outcome.books.values())
    # a kind that reports late has a pause of its own
    found = [pause.kinds for pause in outcome.pauses if pause.worst_ms > PLANTED_MS * 0.9]
    assert {"queue", "topic"} <= set().union(*found)
    # on a busy machine others have the processors meanwhile, which explains a pause
    is_unexplained = not all(pause.is_explained for pause in outcome.pauses)
    assert ended.value.code == int(is_unexplained)
    assert ("UNEXPLAINED" in capsys.readouterr().out) == is_unexplained
    assert len(outcome.minutes) >= 2
