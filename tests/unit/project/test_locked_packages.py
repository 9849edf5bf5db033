"""The lock: what is installed where nothing but known files may be."""

import re
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement

from tests.support.project import ROOT

LINE = re.compile(r"([a-z0-9-]+)==([\w.]+) --hash=sha256:[0-9a-f]{64}  # ([a-z ]+)")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
OPTIONAL = PROJECT["project"]["optional-dependencies"]
SETS = {"base": PROJECT["project"]["dependencies"]} | {
    name: wanted for name, wanted in OPTIONAL.items() if name not in {"web", "bench"}
}
WANTED = [(name, one) for name, wanted in SETS.items() for one in wanted]


def _locked():
    lines = (ROOT / "scripts" / "locked.txt").read_text().splitlines()
    found = [LINE.fullmatch(line) for line in lines[1:]]
    assert all(found), "each line is NAME==VERSION, the digest of a file, and who needs it"
    return {
        name: (version, extras.split()) for name, version, extras in (m.groups() for m in found)
    }


@pytest.mark.parametrize(("extra", "wanted"), WANTED)
def test_each_dependency_is_locked_within_its_bounds_for_who_needs_it(extra, wanted):
    """A lock that was forgotten would install what the project does not take any more."""
    requirement = Requirement(wanted)
    version, extras = _locked()[requirement.name.lower()]

    assert requirement.specifier.contains(version)
    assert extra in extras


@pytest.mark.parametrize(("extra", "wanted"), WANTED)
def test_each_dependency_has_an_upper_bound(extra, wanted):
    """A major version that nobody has tried must not reach a user by itself."""
    assert any(one.operator in {"<", "=="} for one in Requirement(wanted).specifier)


def test_a_lock_holds_for_one_python_on_one_machine_only():
    """Elsewhere its files would not fit."""
    said = subprocess.run(
        [sys.executable, ROOT / "scripts" / "lock", "--here"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()

    assert said.split()[:2] == ["cpython", ".".join(map(str, sys.version_info[:2]))]
    assert (ROOT / "scripts" / "locked.txt").read_text().startswith("# cpython 3.11 Linux x86_64\n")


def test_the_lines_of_the_wanted_extras_alone_are_installed():
    """Who wants a database does not get Spark."""
    words = f'source "{ROOT}/scripts/lib.sh"; locked_for sql'
    said = subprocess.run(
        ["/bin/bash", "-c", words], capture_output=True, text=True, check=True
    ).stdout
    names = {line.partition("==")[0] for line in said.splitlines()}

    assert {"pyzmq", "setuptools", "psycopg"} <= names
    assert not {"pyspark", "pytest"} & names
