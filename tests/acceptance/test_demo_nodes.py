"""The demonstration on several nodes, a short month, and how it refuses a silly number of them."""

import pytest
from click.testing import CliRunner

from hms.boot.cli.demo import demo
from hms.boot.demo.nodes import run
from hms.errors.catalogue import InvalidArgument


def test_the_books_of_three_nodes_balance_after_one_of_them_was_killed(capsys):
    """Must hold for whoever tries a cluster first: nothing lost, nothing twice, and most moved."""
    code = run(3, days=3)
    said = capsys.readouterr().out

    assert code == 0, said
    assert "NODE2 was killed (kill -9)" in said
    lines = [line.split() for line in said.splitlines() if line.startswith("FLIGHTS.")]
    assert [line[-1] for line in lines] == ["balance"] * 3
    figures = {line[0]: [int(word.replace(",", "")) for word in line[1:7]] for line in lines}
    for sent, handled, waiting, dead, _, moved in figures.values():
        assert sent == handled + waiting + dead
        assert moved >= handled > 0
    assert figures["FLIGHTS.LGA"][2] > 0


@pytest.mark.parametrize("count", [-1, 0, 11, 1_000_000])
def test_a_silly_number_of_nodes_is_refused_before_anything_starts(count):
    """A thousand processes on one machine would show nothing but its end."""
    result = CliRunner().invoke(demo, ["--nodes", str(count)])

    assert isinstance(result.exception, InvalidArgument)
    assert "1 to 10" in str(result.exception)
