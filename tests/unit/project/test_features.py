"""The page of features has each one with its state, and names tests that exist for what works."""

import re
import subprocess
import sys

import pytest

ROW = re.compile(r"^\| (F-[A-Z]\d+[^|]*) \|[^|]*\| (.*) \|$", re.MULTILINE)
NAME = re.compile(r"`(test_\w+)`")
STATE = re.compile(r"^\| (F-[A-Z]\d+) \| [^|]+ \| ([^|]+) \| ([^|]*)\|$", re.MULTILINE)
FUNCTION = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)

COUNTS = {
    "A": 5,
    "B": 10,
    "C": 19,
    "D": 9,
    "E": 11,
    "F": 6,
    "G": 1,
    "H": 5,
    "I": 4,
    "J": 10,
    "K": 9,
    "L": 4,
    "M": 7,
    "N": 4,
    "O": 1,
    "Q": 5,
    "X": 2,
}
IDS = [f"F-{part}{number}" for part, count in COUNTS.items() for number in range(1, count + 1)]
"""Every feature that the system must have: so many in each part, A to Q (P is in its own table),
and X, what users asked for besides."""


@pytest.fixture(scope="module")
def page(project_root):
    return (project_root / "docs" / "reference" / "features.md").read_text()


@pytest.fixture(scope="module")
def known(project_root):
    """Every test function of the project."""
    texts = [file.read_text() for file in (project_root / "tests").rglob("test_*.py")]
    return {name for text in texts for name in FUNCTION.findall(text)}


def test_no_feature_stands_without_a_test(page):
    """A promise without a proof is an opinion."""
    rows = ROW.findall(page.split("## Their proof")[1])
    assert len(rows) > 20
    assert [feature for feature, tests in rows if not NAME.search(tests)] == []


def test_every_named_test_exists(page, known):
    """A test that was renamed must not leave its feature unproved."""
    assert [name for name in NAME.findall(page) if name not in known] == []


def test_every_feature_has_its_state_once(page):
    """What is left out would be taken for something that works."""
    states = STATE.findall(page.split("## Their proof")[0])

    assert sorted(feature for feature, _, _ in states) == sorted(IDS)
    wrong = [one for one in states if not re.fullmatch(r"Works|Partly: .+|Not yet", one[1].strip())]
    assert wrong == []


def test_what_works_is_proved_and_what_does_not_is_not(page):
    """Works without a test is an opinion, and a proof of what is not there is a mistake."""
    states, proofs = page.split("## Their proof")
    proved = set(re.findall(r"F-[A-Z]\d+", " ".join(row[0] for row in ROW.findall(proofs))))
    there = {feature for feature, state, _ in STATE.findall(states) if state.strip() != "Not yet"}

    assert sorted(there - proved) == []
    assert sorted(proved & set(IDS) - there) == []


def test_every_comparison_with_jms_is_one(page):
    """A row with another word would be missing from the page that is made of it."""
    said = [one.strip() for _, _, one in STATE.findall(page.split("## Their proof")[0])]

    assert [one for one in said if not re.fullmatch(r"as|(beyond|short): .+|", one)] == []


def test_the_page_about_jms_is_made_of_the_table(project_root):
    """A page that is out of date promises what is not so."""
    command = [sys.executable, str(project_root / "scripts" / "generate-jms"), "--check"]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stderr == ""
