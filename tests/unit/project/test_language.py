"""Pages, help texts, errors, the sample configuration and the source are written in plain English.

Each idiom has stood in them, and each has a plain word: a noun as the subject, an active verb.
"""

import inspect
import re
from collections.abc import Iterator

import click
import pytest

import field_buffer
import hms
import hms.aio
import hms.testing
import tpmon
import tpmon.tx
import tpmon.xa
from hms.boot.cli import main
from hms.boot.config import sample
from hms.boot.counts import counted
from hms.errors.catalogue import BY_NUMBER
from tests.support.project import ROOT

_ARTICLE = r"\ba (?=O\b)|\ba (?=[AEIO][a-z])(?!One|Eu|Uni)"
"""As in "a O"; the capital says that a word was filled in."""
WORDS = {
    r"\bwhoever\b": "the client, consumer, peer … that",
    r"\b(is|are|was|were) told of\b": "is notified of",
    r"\ball the same\b": "nevertheless",
    r"\bin silence\b": "silently",
    r"\basked back\b": "reclaimed",
    r"\bso many more\b": "maximum number of",
    r"\ba producer too many\b": "enforce max_producers",
    r"\bis connected to again\b": "is reconnected",
}
IDIOMS = {
    **WORDS,
    r"\b(close[sd]?|closing|ends?|ended|stop(s|ped)?|shut) in order\b": "cleanly",
    r"\bis not up for\b": "peers that stay down for",
    r"\bwhat came to\b": "messages moved to",
    r"\bso (many|much) (more|at most|are|is|from|of them)\b": "maximum number of, at most",
    r"\ba \w+ too many\b": "enforce max_producers",
    r"\b(is|are|was) connected to again\b": "is reconnected",
    r"\bfor ever\b": "forever",
    r"\bin (its|their|his) stead\b": "instead",
    r"\bfor want of\b": "without",
    r"\b1 nodes\b|\b1 messages\b": "the singular",
    _ARTICLE: "an",
    r"(?<!\.)\.\.(?![./])(?=\s|$)": "one full stop",
}
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if "decisions" not in page.parts),
]
"""A decision is a record of its day and is left as it was written."""
SOURCES = [
    file
    for room in ("hms", "tpmon", "field_buffer", "boot", "services", "workers", "bench", "examples")
    for file in sorted((ROOT / room).rglob("*.py"))
]
_COMMENT = re.compile(r"\n *#:? ?")
_COUNT = re.compile(
    r"\{[^{}]*(?:count|len\()[^{}]*\} "
    r"(?:messages|nodes|queues|users|rules|backups|clients|servers|processes|devices|records)\b"
)
_CODE = re.compile(r"```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def _helps(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    context = click.Context(command, info_name=path)
    yield path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _helps(inner, f"{path} {name}")


def _texts() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        yield str(page.relative_to(ROOT)), _CODE.sub("", page.read_text(encoding="utf-8"))
    yield from _helps(main, "hms")
    for number, kind in BY_NUMBER.items():
        yield f"HMS-{number}", f"{kind.text}. {kind.cure_text} {kind.shell_text}"
    yield "hms.conf", sample()
    for module in (hms, hms.aio, hms.testing, tpmon, tpmon.tx, tpmon.xa, field_buffer):
        for name in module.__all__:
            yield from _docstrings(getattr(module, name), f"{module.__name__}.{name}")


def _docstrings(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Of a public name and, where it is a class, of what its users call."""
    if inspect.isclass(value) or inspect.isroutine(value):
        yield path, _CODE.sub("", inspect.getdoc(value) or "")
    for name in dir(value) if inspect.isclass(value) else ():
        member = inspect.getattr_static(value, name)
        if not name.startswith("_") and (callable(member) or isinstance(member, property)):
            yield f"{path}.{name}", _CODE.sub("", inspect.getdoc(member) or "")


def _found(text: str, idioms: dict[str, str] = IDIOMS) -> list[str]:
    text = " ".join(text.split())
    return [
        f"{text[max(0, hit.start() - 30) : hit.end() + 20]!r}: {plain}"
        for idiom, plain in idioms.items()
        for hit in re.finditer(idiom, text, 0 if idiom is _ARTICLE else re.IGNORECASE)
    ]


def test_no_text_has_an_idiom_of_our_own():
    """A reader of another language takes each word as it stands in a dictionary."""
    assert [f"{where}: {fault}" for where, text in _texts() for fault in _found(text)] == []


def test_no_docstring_or_comment_has_one_either():
    """A new engineer reads these first. Looked for in the whole source: no name has such words."""
    faults = [
        f"{file.relative_to(ROOT)}: {fault}"
        for file in SOURCES
        for fault in _found(_COMMENT.sub(" ", file.read_text(encoding="utf-8")), WORDS)
    ]
    assert faults == []


def test_the_command_line_counts_in_one_place():
    """counted() knows the singular; `1 backups would go` came from an f-string of its own."""
    typed = [
        f"{file.relative_to(ROOT)}: {hit[0]}"
        for file in sorted((ROOT / "boot").rglob("*.py"))
        for hit in _COUNT.finditer(file.read_text(encoding="utf-8"))
    ]
    assert typed == []


@pytest.mark.parametrize(("count", "said"), [(0, "0 nodes"), (1, "1 node"), (2000, "2,000 nodes")])
def test_one_thing_is_in_the_singular(count, said):
    """A reader stops at `1 nodes`."""
    assert counted(count, "node") == said
    assert counted(1, "process", "processes") == "1 process"


@pytest.mark.parametrize(
    "text",
    ["Whoever asks is told", "it is kept all the same", "what was\nasked back", "has space.. See"],
)
def test_the_check_itself_finds_them(text):
    """A check that never failed is not trusted."""
    assert _found(text)
