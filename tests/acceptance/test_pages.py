"""Pages are typed as they stand; page_reader.py says how."""

import tomllib

import pytest

from tests.acceptance.page_reader import Reader, blocks, warm_shell
from tests.support.project import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ELSEWHERE = {"night-shift": "test_night_shift.py brings a node into that state and runs it"}
RUN = [
    page
    for page in PAGES
    if page.stem not in ELSEWHERE and any(block.runs for block in blocks(page))
]
BOOKS = [[page] for page in RUN if "reference" not in page.parts]
BOOKS += [[page for page in RUN if "reference" in page.parts]]
"""What is read in one folder: a page, but all of the reference, whose examples need a node only."""


@pytest.fixture(scope="module")
def warm():
    with warm_shell() as shell:
        yield shell
        assert shell.stdin is not None
        shell.stdin.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book[-1].relative_to(ROOT).as_posix())
def test_a_page_does_what_it_says(book, tmp_path, warm):
    """The first command of a page that fails is the last one its reader tries."""
    with Reader(tmp_path, warm) as reader:
        for page in book:
            reader.read(page)


def test_every_toml_block_can_be_read():
    """Also of the pages that are not run."""
    faults = []
    for page in PAGES:
        for block in blocks(page):
            if block.language == "toml":
                try:
                    tomllib.loads(block.text)
                except tomllib.TOMLDecodeError as fault:
                    faults.append(f"{page.relative_to(ROOT)}:{block.line}: {fault}")
    assert faults == []
