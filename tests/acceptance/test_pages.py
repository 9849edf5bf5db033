"""Pages are typed as they stand; page_reader.py says how."""

import contextlib
import functools
import tempfile
import tomllib
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.bank_rig import bank
from tests.acceptance.page_reader import TYPED, Reader, blocks, warm_shell
from tests.support.project import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ELSEWHERE = {
    "night-shift": "test_night_shift.py brings a node into that state and runs it",
    "two-machines": "test_ha_replicas.py starts the arbiter, and types it on two machines",
}
RUN = [
    page
    for page in PAGES
    if page.stem not in ELSEWHERE and any(block.runs for block in blocks(page))
]
SMALL = (
    "reference",
    "replay",
    "asyncio",
    "large-files",
    "schedules",
    "retries",
    "testing",
    "sizing",
)
SMALL += ("transactions", *(f"coming-from-{one}" for one in ("rabbitmq", "jms", "tmax")))
ALONE = [page for page in RUN if not set(SMALL) & {page.stem, *page.parts}]
BOOKS = [*([page] for page in ALONE), [page for page in RUN if page not in ALONE]]
"""What is read beside one node, each page in a folder of its own: the examples of the reference and
small pages, which need a node and nothing else of it; the others boot one as they say."""


LANGUAGES = {*TYPED, "python", "toml", "sql", "text"}


@pytest.fixture(scope="module")
def warm():
    with warm_shell() as shell:
        yield shell
        assert shell.stdin is not None
        shell.stdin.close()


@pytest.fixture(scope="module")
def servers():
    """Both databases of a bank, started for the first page that needs them; their addresses."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def start():
            both = stack.enter_context(bank())
            return {
                "postgresql://bank@localhost/west": both.postgres.url,
                "mariadb://bank@localhost/east": both.mariadb.url,
            }

        yield start


@pytest.fixture
def databases(servers):
    """The same, without the table that each page makes for itself."""

    def start():
        both = servers()
        with psycopg.connect(both["postgresql://bank@localhost/west"], autocommit=True) as west:
            west.execute("DROP TABLE IF EXISTS orders")
        return both

    return start


@pytest.fixture
def folder():
    """With a short path, as that of a local socket in it may have 107 characters."""
    with tempfile.TemporaryDirectory(prefix="hms-page-") as made:
        yield Path(made, "of")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book[-1].relative_to(ROOT).as_posix())
def test_a_page_does_what_it_says(book, folder, warm, databases):
    """The first command of a page that fails is the last one its reader tries."""
    with Reader(folder, warm, databases) as reader:
        for page in book:
            reader.read(page)


def test_every_block_says_what_it_is_and_its_language_is_one_that_is_typed():
    """A block without a language was typed by nobody, and a reader typed it."""
    unknown, is_inside = [], False
    for page in PAGES:
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            if line.startswith("```"):
                is_inside = not is_inside
                if is_inside and line.removeprefix("```").split(" ")[0] not in LANGUAGES:
                    unknown.append(f"{page.relative_to(ROOT)}:{number}: {line}")
        is_inside = False
    assert unknown == []


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
