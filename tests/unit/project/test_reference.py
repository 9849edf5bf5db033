"""Every public name stands in the reference, with what it means."""

import importlib
import re
import subprocess
import sys

import pytest

import hms
from hms.boot.sections import SECTIONS
from hms.history.events import COLUMNS
from tests.support.project import ROOT

REFERENCE = ROOT / "docs" / "reference"
API = sorted((REFERENCE / "api").glob("*.md"))
MODULES = ("hms", "hms.aio", "hms.testing", "tpmon", "tpmon.tx", "tpmon.xa", "field_buffer")
HEADING = re.compile(r"^##+ (\S+)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `([^`]+)` \| (.*?) \| (.*?) \|$", re.MULTILINE)


def _written(page):
    return (REFERENCE / f"{page}.md").read_text()


def _entries():
    """What each name of the pages is told of."""
    found = {}
    for page in API:
        text = page.read_text()
        found |= {name: said for name, _, said in ROW.findall(text)}
        found |= {
            name: re.sub(r"```.*?```", "", said, flags=re.DOTALL)
            for name, said in HEADING.findall(text)
        }
    return found


def _is_error(value):
    return isinstance(value, type) and value in hms.BY_NUMBER.values()


def test_the_pages_are_those_of_the_docstrings():
    """A page that was written once and then forgotten lies."""
    words = [sys.executable, str(ROOT / "scripts" / "generate-reference"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=250, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_an_entry(module):
    """What is not in the reference is found by reading the source only."""
    library, entries, errors = importlib.import_module(module), _entries(), _written("errors")
    values = {name: getattr(library, name) for name in library.__all__}

    missing = [
        name
        for name, value in values.items()
        if (f"| `{name}` |" not in errors if _is_error(value) else name not in entries)
    ]

    assert missing == []


def test_every_entry_says_what_it_is():
    """A name with nothing beside it is a name only."""
    assert [name for name, said in _entries().items() if not said.strip()] == []


def test_every_page_of_names_has_an_example():
    """An example is read before the signature."""
    assert [page.stem for page in API if "```python\n" not in page.read_text()] == []


def test_every_configuration_key_and_history_column_has_a_row():
    """They are looked up by their names."""
    keys = [key.name for section in SECTIONS for key in section.keys]
    configuration, history = _written("configuration"), _written("history")

    assert [key for key in keys if f"| `{key}` |" not in configuration] == []
    assert [field for field in COLUMNS if f"`{field}`" not in history] == []
