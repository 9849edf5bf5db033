"""The rows of a product test cover what they say."""

from itertools import combinations, product

from tests.support.pairwise import pairwise

AXES = {"a": range(7), "b": range(6), "c": "xyz", "d": (None, 1)}


def test_every_pair_of_values_is_in_some_row():
    """A pair that is left out would be a condition that nobody proves."""
    rows = pairwise(AXES)

    for one, other in combinations(AXES, 2):
        met = {(row[one], row[other]) for row in rows}
        assert met == set(product(AXES[one], AXES[other]))


def test_the_rows_are_few_and_always_the_same():
    """The whole product has 252."""
    assert len(pairwise(AXES)) < 60
    assert pairwise(AXES) == pairwise(AXES)
