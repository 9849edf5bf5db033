"""The page of features names a test for each feature, and every test that it names exists."""

import re

import pytest

ROW = re.compile(r"^\| (F-[A-Z]\d+[^|]*) \|[^|]*\| (.*) \|$", re.MULTILINE)
NAME = re.compile(r"`(test_\w+)`")
FUNCTION = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)


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
    rows = ROW.findall(page)
    assert len(rows) > 20
    assert [feature for feature, tests in rows if not NAME.search(tests)] == []


def test_every_named_test_exists(page, known):
    """A test that was renamed must not leave its feature unproved."""
    assert [name for name in NAME.findall(page) if name not in known] == []
