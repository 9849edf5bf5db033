"""The floors of the house, held against what every source file really imports.

Imports run down or stay inside their package, so that a reader who knows a floor knows all it can
touch, and so that the engine and the wire can be simulated without a machine around them.
"""

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.project import ROOT

PACKAGES = ("field_buffer", "hms", "tpmon", "workers", "services", "boot")

LINKED = ("workers", "services", "boot")
"""Folders of the repository that are imported, and installed, below hms."""

# The longest name that fits decides.
FLOORS = {
    "hms.errors": 0,
    "field_buffer": 0.1,
    "hms.wire": 0.2,
    "hms.constants": 0.3,
    "hms.records": 0.5,
    "hms.engine": 1,
    "hms.store": 1,
    "hms.workers": 1,
    "hms": 2,
    "hms.client": 2,
    "hms.server": 2,
    "tpmon": 3,
    "hms.history": 3,
    "hms.services": 3,
    "hms.testing": 4,
    "hms.boot": 4,
}

# Names that live on a higher floor are handed out lazily by this one file.
LAZY = "hms"

PURE = ("hms.records", "hms.engine", "hms.wire")
COMPUTES = """
    __future__ abc array base64 binascii bisect collections contextlib copy dataclasses difflib enum
    functools hashlib heapq hmac itertools math operator re string struct types typing unicodedata
    zlib msgspec
"""
PURE_MAY_IMPORT = frozenset(COMPUTES.split())
PURE_BELOW = ("hms.errors", "field_buffer", "hms.wire", "hms.records", "hms.constants")
PURE_EXCEPTIONS = {("hms.wire.packed_messages", "os")}  # reads HMS_PURE, once

CLIENT_MAY_IMPORT = (
    "field_buffer",
    "hms.client",
    "hms.errors",
    "hms.otel",
    "hms.wire",
    "hms.constants",
)

# S01: data is never code. Whoever reads a wire or a file may not turn a name into a module either.
CODE_FROM_DATA = frozenset(("pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml"))
RUNS_CODE = frozenset(("eval", "exec", "compile", "__import__"))
READS_FOREIGN_BYTES = ("field_buffer", "hms.engine", "hms.store", "hms.client", "hms.wire")


@dataclass(frozen=True, slots=True)
class Module:
    """A source file: its dotted name, and whether it is a package's __init__."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


def _read(path: Path) -> Module:
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    if parts[0] in LINKED:
        name = f"hms.{name}"
    return Module(name, path, ast.parse(path.read_text(encoding="utf-8")))


MODULES = [_read(path) for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
NAMES = frozenset(module.name for module in MODULES)


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    base = module.name.split(".")
    base = base[: len(base) - node.level + module.is_package]
    return ".".join([*base, node.module] if node.module else base)


def _imports(module: Module) -> Iterator[tuple[int, str]]:
    """(line, imported module) of every import, also those inside functions."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, node)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield node.lineno, inner if inner in NAMES else base


def _is_in(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def _package(name: str) -> str | None:
    """The entry of FLOORS that a module belongs to; None for a module that is not ours."""
    fitting = [package for package in FLOORS if _is_in(name, package)]
    return max(fitting, key=len) if fitting else None


def _where(module: Module, line: int) -> str:
    return f"{module.path.relative_to(ROOT)}:{line}"


@functools.cache
def _all_imports() -> tuple[tuple[Module, str, str], ...]:
    """(module, imported, place) of every import in every package."""
    return tuple(
        (module, imported, _where(module, line))
        for module in MODULES
        for line, imported in _imports(module)
    )


def _runs_down(importer: str, imported: str) -> bool:
    source, target = _package(importer), _package(imported)
    if target is None or source is None or source == target:
        return True
    if FLOORS[source] == 1:
        return FLOORS[target] < 1
    return FLOORS[target] <= FLOORS[source]


@pytest.mark.parametrize(
    ("importer", "imported", "is_allowed"),
    [
        ("hms.boot.node", "hms.engine.broker", True),
        ("hms.server.gateway", "hms.workers.pool", True),
        ("hms.client.session", "hms.client.core.blocking_connection", True),
        ("hms.store.journal.log", "hms.store.interface", True),
        ("hms.engine.broker", "json", True),
        ("hms.store.journal.log", "hms.engine.queue.pending_list", False),
        ("hms.store.database.tables", "hms.records", True),
        ("hms.records.sent", "hms.store.interface", False),
        ("hms.engine.broker", "hms.client.core.link", False),
        ("hms.wire.frames", "hms", False),
        ("field_buffer.types", "hms.wire.frames", False),
        ("hms.history.source", "hms.testing.node", False),
    ],
)
def test_the_rule_itself_tells_right_from_wrong(importer, imported, is_allowed):
    """A check that never failed is not trusted."""
    assert _runs_down(importer, imported) is is_allowed


def test_imports_run_down_or_stay_inside_their_package():
    """A lower floor that knows a higher one can no longer be read, or tested, without it."""
    wrong = [
        f"{place}: {module.name} imports {imported}"
        for module, imported, place in _all_imports()
        if module.name != LAZY and not _runs_down(module.name, imported)
    ]

    assert wrong == []


def test_the_table_of_floors_names_packages_that_exist():
    """A floor of a package that was renamed guards nothing."""
    gone = [name for name in FLOORS if name not in NAMES]

    assert gone == []


def _leads_back(graph: dict[str, set[str]], start: str) -> bool:
    """Whether a module imports itself by way of others."""
    seen: set[str] = set()
    ahead = list(graph[start])
    while ahead:
        name = ahead.pop()
        if name == start:
            return True
        if name not in seen:
            seen.add(name)
            ahead += graph.get(name, ())
    return False


def test_a_cycle_is_found():
    """A check that never failed is not trusted."""
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}}

    assert [name for name in graph if _leads_back(graph, name)] == ["b", "c"]


def test_no_module_imports_itself_by_way_of_others():
    """Modules of a cycle can only be read, tested and changed together. Imports for annotations and
    those inside functions count as well."""
    graph: dict[str, set[str]] = {}
    for module, imported, _ in _all_imports():
        if imported in NAMES and module.name != LAZY:
            graph.setdefault(module.name, set()).add(imported)

    assert [name for name in graph if _leads_back(graph, name)] == []


def test_every_package_has_a_floor():
    """A new folder must not escape the rules by being unknown to them."""
    assert [module.name for module in MODULES if _package(module.name) is None] == []


@pytest.mark.parametrize("pure", PURE)
def test_the_sans_io_packages_import_only_what_computes(pure):
    """The engine and the wire touch no socket, thread, file, clock or chance (P3)."""
    wrong = [
        f"{place}: {imported}"
        for module, imported, place in _all_imports()
        if _is_in(module.name, pure)
        and imported.split(".")[0] not in PURE_MAY_IMPORT
        and not _is_in(imported, pure, *PURE_BELOW)
        and (module.name, imported) not in PURE_EXCEPTIONS
    ]

    assert wrong == []


def test_the_field_buffer_imports_nothing_of_ours():
    """It is the ground floor: client, node and history all stand on it, and it on the errors."""
    wrong = [
        f"{place}: {imported}"
        for module, imported, place in _all_imports()
        if _is_in(module.name, "field_buffer")
        and _is_in(imported, *PACKAGES[1:])
        and not _is_in(imported, "hms.errors")
    ]

    assert wrong == []


def test_the_client_imports_only_what_an_application_needs():
    """An application's process must load neither the broker nor what only the node needs."""
    wrong = [
        f"{place}: {imported}"
        for module, imported, place in _all_imports()
        if _is_in(module.name, "hms.client")
        and _is_in(imported, *PACKAGES)
        and not _is_in(imported, *CLIENT_MAY_IMPORT)
    ]

    assert wrong == []


def test_only_boot_imports_boot():
    """What composes all the others is known to none of them."""
    wrong = [
        f"{place}: {imported}"
        for module, imported, place in _all_imports()
        if _is_in(imported, "hms.boot") and not _is_in(module.name, "hms.boot")
    ]

    assert wrong == []


def test_no_module_imports_the_tests():
    """What is installed must not need what is not."""
    wrong = [
        f"{place}: {imported}"
        for _, imported, place in _all_imports()
        if _is_in(imported, "tests", "conftest", "bench", "pytest", "hypothesis")
        and not place.startswith("hms/testing/")
    ]

    assert wrong == []


def test_no_module_makes_code_from_data():
    """S01: brokers were taken over by frames that named a class to build."""
    wrong = [
        f"{place}: {imported}"
        for _, imported, place in _all_imports()
        if imported.split(".")[0] in CODE_FROM_DATA
    ]
    wrong += [
        f"{_where(module, node.lineno)}: {node.func.id}()"
        for module in MODULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in RUNS_CODE
    ]

    assert wrong == []


def test_what_reads_foreign_bytes_imports_nothing_by_name():
    """S01: a name from the wire or from a file must never become a module."""
    wrong = [
        f"{place}: {imported}"
        for module, imported, place in _all_imports()
        if _is_in(module.name, *READS_FOREIGN_BYTES) and _is_in(imported, "importlib", "runpy")
    ]

    assert wrong == []


def test_the_drawn_plan_is_made_of_these_imports(project_root):
    """A plan of last year leads into walls."""
    words = [sys.executable, str(project_root / "scripts" / "generate-plan"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=250, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
