"""The walkthroughs for contributors name every file that a change touches.

For each of them one thing that is there is followed through the code: the files in which its
name occurs are those that the page lists.
"""

import re

import pytest

from tests.support.project import ROOT

PAGE = ROOT / "docs" / "how-to" / "contribute.md"
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"
CODE = ("boot", "hms", "tpmon", "services", "workers", "field_buffer")
MADE = {"hms/errors/catalogue.py"}
EXAMPLES = {
    "A new configuration key": (r"\bmax_schedules\b", set()),
    "A new limit policy": (r"\bREMOVE_LOW_PRIORITY\b", {"docs/concepts/destinations.md"}),
    "A new operator command": (r"\bsubscription[._]delete\b|\bDeleteSubscription\b", set()),
    "A new record type": (r"\bPEERS\b|\bdecode_peers\b", set()),
}
"""What is followed, and the pages that are listed beside the code."""
_FILE = re.compile(r"`([a-z_]+(?:/[A-Za-z_]+)+\.(?:py|md|toml|conf|svg))`")


def _part(title):
    return PAGE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def _listed(title):
    """The files of the numbered lines."""
    lines = [line for line in _part(title).splitlines() if re.match(r"\d+\. ", line)]
    return {name for line in lines for name in _FILE.findall(line)}


def _named_in(pattern):
    """The modules in which something is named, without what is made from others."""
    files = {path.resolve() for top in CODE for path in (ROOT / top).rglob("*.py")}
    found = {path for path in files if re.search(pattern, path.read_text())}
    return {str(path.relative_to(ROOT)) for path in found} - MADE


@pytest.mark.parametrize("title", EXAMPLES)
def test_a_walkthrough_names_every_file(title):
    """Who follows it must not find out by a failing test what else there is."""
    pattern, pages = EXAMPLES[title]

    assert _listed(title) == _named_in(pattern) | pages


@pytest.mark.parametrize("page", [PAGE, GLOSSARY], ids=lambda page: page.stem)
def test_every_file_that_is_named_exists(page):
    """Files are renamed, pages forget it."""
    named = set(_FILE.findall(page.read_text()))

    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_a_word_of_the_glossary_is_explained_once():
    """Two meanings of one word are two words."""
    rows = re.findall(r"^\| ([a-z][^|]*) \| [^|]+ \| [^|]+ \|$", GLOSSARY.read_text(), re.MULTILINE)
    words = [word.strip() for row in rows for word in row.split(",") if row != "word"]

    assert len(words) > 50
    assert len(words) == len(set(words))


@pytest.mark.parametrize("page", [PAGE, GLOSSARY], ids=lambda page: page.stem)
def test_the_list_of_pages_leads_there(page):
    """A page that nothing leads to is not read."""
    where = page.relative_to(ROOT / "docs")

    assert f"({where})" in (ROOT / "docs" / "index.md").read_text()
