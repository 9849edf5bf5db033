"""The rules of the repository that a machine can hold: docstrings, public names, words."""

import ast
import importlib
import os
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.project import ROOT

GENERATED = frozenset(("hms/errors/catalogue.py",))

PYTHON_FOLDERS = ("field_buffer", "hms", "tpmon", "workers", "services", "boot", "tests", "bench")
FOLDERS_LEFT_OUT = frozenset(
    (".git", ".venv", "__pycache__", "build", "dist", "var", "spark-warehouse", ".hypothesis")
)
PUBLIC = (
    "field_buffer",
    "hms.errors.catalogue",
    "hms",
    "hms.aio",
    "hms.constants",
    "hms.errors",
    "hms.history",
    "hms.testing",
    "tpmon",
    "tpmon.tx",
    "tpmon.xa",
)

# Written in two halves, so that this file does not hold what it looks for.
FORBIDDEN_WORDS = tuple(
    first + second
    for first, second in (
        ("/wo", "rk/"),
        ("/ro", "ot/"),
        ("py", "pi.org"),
        ("python", "hosted.org"),
        ("repo1.", "maven"),
        ("repo.", "maven"),
        ("registry.", "npm"),
        ("conda.", "anaconda"),
        ("proxy.", "golang"),
        ("TO", "DO"),
        ("FIX", "ME"),
    )
)


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _python_files() -> list[Path]:
    files = [path for folder in PYTHON_FOLDERS for path in (ROOT / folder).rglob("*.py")]
    scripts = [path for path in (ROOT / "scripts").glob("*") if _is_python_script(path)]
    return sorted(path for path in files + scripts if _name(path) not in GENERATED)


def _is_python_script(path: Path) -> bool:
    return path.is_file() and path.read_bytes().startswith(b"#!/usr/bin/env python3")


def _text_files() -> Iterator[Path]:
    """Every file of the project itself."""
    for folder, inner, files in os.walk(ROOT):
        inner[:] = [name for name in inner if _is_ours(name)]
        yield from (Path(folder) / name for name in files if name != ".git")


def _is_ours(folder: str) -> bool:
    return not (folder in FOLDERS_LEFT_OUT or folder.endswith((".egg-info", "_cache")))


def test_every_module_says_what_it_is_for():
    """A reader decides by the first line whether this is the right file."""
    silent = [_name(path) for path in _python_files() if not _begins_with_text(path)]

    assert silent == []


def _begins_with_text(path: Path) -> bool:
    """Read as far as the first word: to parse 1,300 files took 8 s."""
    before = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENCODING)
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type not in before:
                is_text = token.type == tokenize.STRING
                return is_text and bool(str(ast.literal_eval(token.string)).strip())
    return False


def _defines_something(path: Path) -> bool:
    return len(ast.parse(path.read_text()).body) > 1


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_stand_in_all(module):
    """Applications may rely on what __all__ names, and on nothing else."""
    path = ROOT / Path(*module.split("."))
    path = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
    if not path.exists() or not _defines_something(path):
        return  # a part that this version does not have, or an empty package

    loaded = importlib.import_module(module)

    assert len(set(loaded.__all__)) == len(loaded.__all__)
    assert [name for name in loaded.__all__ if not hasattr(loaded, name)] == []


def test_no_file_names_this_machine_or_a_registry():
    """What is published must work elsewhere, and says nothing of where it was written."""
    said = []
    for path in _text_files():
        try:
            text = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):  # of a test that runs beside this one
            continue
        said += [f"{_name(path)}: {word}" for word in FORBIDDEN_WORDS if word in text]

    assert said == []


def test_no_module_of_the_tests_is_named_like_one_of_python():
    """Test folders are on the path: a child process would import ours in its place, and end."""
    names = {path.stem: path for path in (ROOT / "tests").rglob("*.py")}
    assert not [str(names[name]) for name in names.keys() & sys.stdlib_module_names]


def test_every_script_can_be_run():
    """A command in the README must not end in 'permission denied'."""
    scripts = [*(ROOT / "scripts").glob("*"), ROOT / ".ci" / "run"]
    started = [path for path in scripts if path.is_file() and path.read_bytes()[:2] == b"#!"]

    assert [_name(path) for path in started if not os.access(path, os.X_OK)] == []
