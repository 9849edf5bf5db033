"""What an application's process loads when it imports hms or tpmon."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.project import ROOT

NODE_ONLY = ("hms.engine", "hms.store", "hms.history", "hms.workers", "hms.services", "hms.boot")
HEAVY = (
    "pyspark",
    "py4j",
    "pyarrow",
    "pandas",
    "numpy",
    "apscheduler",
    "click",
    "rich",
    "textual",
    "sqlite3",
)


def _is_in(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def _loaded_by(statements: str, cwd: Path, *path: Path) -> list[str]:
    """The modules that a fresh interpreter has loaded after these statements."""
    program = f"{statements}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    loaded: list[str] = json.loads(ended.stdout.splitlines()[-1])
    return loaded


@pytest.mark.parametrize("package", ["hms", "tpmon"])
def test_an_application_loads_neither_engine_nor_store_nor_spark(package, tmp_path):
    """Importing the client must be quick, and small in memory."""
    use = "[getattr(hms, name, None) for name in ('connect', 'Message', 'Queue', 'HmsError')]"
    use = use if package == "hms" else "tpmon.__name__"

    loaded = _loaded_by(f"import {package}\n{use}", tmp_path, ROOT)

    assert [name for name in loaded if _is_in(name, *NODE_ONLY, *HEAVY)] == []


def test_an_application_may_have_folders_named_as_ours(tmp_path):
    """Applications call their folders services, workers and boot too, and theirs come first."""
    for name in ("services", "workers", "boot"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("OWNER = 'application'\n")
    check = "import services, workers, boot, hms, tpmon\n"
    check += "getattr(hms, 'connect', None)\n"
    check += "assert {services.OWNER, workers.OWNER, boot.OWNER} == {'application'}"

    loaded = _loaded_by(check, tmp_path, tmp_path, ROOT)

    assert "hms.services" not in loaded
