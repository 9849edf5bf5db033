"""The page of invariants names tests, plants and looks of the simulator that exist, and leaves no
plant out."""

import re

import pytest

from tests.sim.replicas import planted

NAME = re.compile(r"`(\w+)`")
FUNCTION = re.compile(r"^ *(?:async )?def (\w+)", re.MULTILINE)
LISTS = (
    planted.PLANTS,
    planted.PLANTS_OF_THREE,
    planted.PLANTS_OF_FIVE,
    planted.PLANTS_OF_ALL,
    planted.PLANTS_OF_ZEROS,
    planted.PLANTS_WITH_ONE_FAR,
)
OTHER_WORDS = {"REPLICA", "WITHDRAWN"}
INVARIANTS = 21


@pytest.fixture(scope="module")
def page(project_root):
    return (project_root / "docs" / "reference" / "invariants.md").read_text()


def test_everything_that_the_page_of_invariants_names_exists(page, project_root):
    """A test that was renamed must not leave its invariant unproved."""
    files = [
        *(project_root / "tests").rglob("test_*.py"),
        *(project_root / "tests/sim").rglob("*.py"),
    ]
    known = {name for file in files for name in FUNCTION.findall(file.read_text())}
    named = set(NAME.findall(page)) - OTHER_WORDS

    assert len(named) > 100
    assert sorted(named - known) == []


def test_every_invariant_of_copies_has_its_row_and_a_test(page):
    """Each is looked at by a test, whatever else looks at it."""
    rows = re.findall(r"^\| (H\d+) \|.*\|([^|]*)\|([^|]*)\|$", page, re.MULTILINE)

    assert [number for number, _, _ in rows] == [f"H{n}" for n in range(1, INVARIANTS + 1)]
    assert [number for number, one, other in rows if "`test_" not in one + other] == []


def test_every_mistake_of_the_plan_has_its_test(page):
    """A row of the faults without a test would be an opinion."""
    planted_rows = page.split("## Planted faults")[1].split("## Faults")[0].splitlines()[4:]

    assert [row for row in planted_rows if row and "`test_" not in row] == []


def test_the_simulator_is_tried_with_every_plant():
    """One that stands in no list is planted by nobody."""
    listed = {plant.__name__ for plants in LISTS for plant in plants}
    there = {
        name
        for name, one in vars(planted).items()
        if callable(one) and getattr(one, "__module__", "") == planted.__name__
    }

    assert there - listed == set()
