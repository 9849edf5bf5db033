"""The mixed load, for seconds, on a real node (capability "Fast", must show 4)."""

import msgspec
import pytest

from bench.mixed import main
from bench.mixed_figures import Outcome

PLANTED_MS = 1000


def test_the_books_balance_and_a_planted_pause_is_found(tmp_path, monkeypatch, capsys):
    """An hour without a pause says something only if a pause would have been seen."""
    found = tmp_path / "found.json"
    words = f"--rate 200 --minutes 0.1 --row-s 3 --plant-pause-ms {PLANTED_MS} --data {tmp_path}"
    command = ["mixed", *words.split(), "--json", str(found)]
    monkeypatch.setattr("sys.argv", command)

    with pytest.raises(SystemExit) as ended:
        main()

    outcome = msgspec.json.decode(found.read_bytes(), type=Outcome)
    assert all(books.sent and books.is_balanced for books in outcome.books.values())
    planted = max(outcome.pauses, key=lambda pause: pause.worst_ms)
    assert planted.worst_ms > PLANTED_MS * 0.9
    assert {"queue", "topic"} <= planted.kinds
    # on a busy machine others have the processors meanwhile, which explains a pause
    is_unexplained = not all(pause.is_explained for pause in outcome.pauses)
    assert ended.value.code == int(is_unexplained)
    assert ("UNEXPLAINED" in capsys.readouterr().out) == is_unexplained
    assert len(outcome.minutes) >= 2
