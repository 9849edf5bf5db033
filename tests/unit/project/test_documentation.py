"""What the README and docs/ tell a reader to type or import exists.

A shell block is read line by line: every `hms …` in it must be a command of the real command line
with options it knows, every `scripts/…` a file. Python blocks must compile, and names taken from
hms, tpmon and field_buffer must be there.
"""

import ast
import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from tests.support.project import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND_PAGE = ROOT / "docs" / "how-to" / "operate-a-node.md"
SHELL, CONSOLE = ("bash", "sh"), ("console",)

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(hms [^`]+)`")
_OPERATORS = frozenset(("|", "||", "&", "&&", ";", "(", ")"))


class Block(NamedTuple):
    """A fenced block; line is the first one inside it."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def _blocks(*languages: str) -> list[Block]:
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in _FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 2
            found.append(Block(page, line, match[1], match[2]))
    return [block for block in found if block.language in languages]


def _typed(block: Block) -> Iterator[str]:
    """The lines of a block that a reader types; in a console block those after the prompt."""
    for line in block.text.replace("\\\n", " ").splitlines():
        if block.language not in CONSOLE:
            yield line
        elif line.startswith("$ "):
            yield line[2:]


def _commands(line: str) -> Iterator[list[str]]:
    """The simple commands of a shell line, as words."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if word not in _OPERATORS:
            words.append(word)
        elif words:
            yield words
            words = []
    if words:
        yield words


def _shell_commands() -> list[tuple[str, list[str]]]:
    """(place, words) of every command that a page tells a reader to type."""
    return [
        (block.where, words)
        for block in _blocks(*SHELL, *CONSOLE)
        for line in _typed(block)
        for words in _commands(line)
    ]


def _command_line() -> click.Group:
    """The real command line, which boot.cli calls main."""
    group = importlib.import_module("hms.boot.cli").main
    assert isinstance(group, click.Group), "hms.boot.cli:main is expected to be a click group"
    return group


def _fault(words: Sequence[str], command: click.Command) -> str | None:
    """Why the command line would not understand these words; None when it does."""
    context = click.Context(command, info_name="hms")
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in (">", ">>", "<"):
            return None
        if word.startswith("-") and word.strip("-"):
            name, given, _ = word.partition("=")
            option = _option(command, context, name)
            if option is None:
                return f"{context.command_path} has no option {name}"
            if not given and not option.is_flag and not option.count:
                del rest[: option.nargs]
        elif isinstance(command, click.Group):
            inner = command.get_command(context, word)
            if inner is None:
                return f"{context.command_path} has no command {word}"
            command, context = inner, click.Context(inner, info_name=word, parent=context)
    return None


def _option(command: click.Command, context: click.Context, name: str) -> click.Option | None:
    for parameter in command.get_params(context):
        names = [*parameter.opts, *parameter.secondary_opts]
        if isinstance(parameter, click.Option) and name in names:
            return parameter
    return None


def test_there_is_something_to_check():
    """A pattern that finds nothing would pass for ever."""
    assert len(_shell_commands()) > 10
    assert _blocks("python")


@pytest.mark.parametrize(
    ("line", "is_right"),
    [
        ("hms queue list --json", True),
        ("hms --config my.conf queue list > list.txt", True),
        ("cat body | hms queue list", True),
        ("hms queue lost", False),
        ("hms queue list --jason", False),
        ("true && hms lost", False),
    ],
)
def test_the_check_itself_tells_right_from_wrong(line, is_right):
    """A check that never failed is not trusted."""
    listing = click.Command("list", params=[click.Option(["--json"], is_flag=True)])
    queue = click.Group("queue", commands=[listing])
    whole = click.Group("hms", commands=[queue], params=[click.Option(["--config"])])

    faults = [_fault(words[1:], whole) for words in _commands(line) if words[0] == "hms"]

    assert (faults == [None]) is is_right


def test_every_command_in_a_page_exists():
    """The first command of a page that fails is the last one its reader tries."""
    command_line = _command_line()

    faults = [
        f"{where}: {fault}"
        for where, words in _shell_commands()
        if Path(words[0]).name == "hms" and (fault := _fault(words[1:], command_line))
    ]

    assert faults == []


def test_every_command_of_the_operators_page_exists():
    """Its tables name commands outside of blocks."""
    command_line = _command_line()

    faults = [
        f"{said}: {fault}"
        for said in _INLINE.findall(COMMAND_PAGE.read_text(encoding="utf-8"))
        for words in _commands(said)
        if (fault := _fault(words[1:], command_line))
    ]

    assert faults == []


def _leaves(command: click.Command, path: str) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield path
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        if not inner.hidden:
            yield from _leaves(inner, f"{path} {name}")


def test_the_operators_page_leaves_no_command_out():
    """A command that no page names does not exist for an operator."""
    text = COMMAND_PAGE.read_text(encoding="utf-8")

    missing = [path for path in _leaves(_command_line(), "hms") if path not in text]

    assert missing == []


def test_every_script_in_a_page_exists():
    """scripts/demo and scripts/test are the two promises on the first page."""
    named = [
        (where, words[0]) for where, words in _shell_commands() if words[0].startswith("scripts/")
    ]

    assert named
    assert [(where, name) for where, name in named if not os.access(ROOT / name, os.X_OK)] == []


@pytest.mark.parametrize("block", _blocks("python"), ids=lambda block: block.where)
def test_every_python_block_compiles_and_its_names_exist(block):
    """An example is copied before it is read."""
    tree = ast.parse(block.text)
    missing = [
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("hms", "tpmon", "field_buffer")
        and not hasattr(importlib.import_module(node.value.id), node.attr)
    ]

    assert missing == []


def test_the_picture_of_the_first_page_is_made_by_its_script():
    """A drawing that nobody can make again is never changed again."""
    words = [sys.executable, str(ROOT / "scripts" / "generate-picture"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=250, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
