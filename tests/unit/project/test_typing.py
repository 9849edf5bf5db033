"""What an editor and a type checker see of the library."""

import json
import subprocess
import sys

import pytest

import field_buffer
import hms
import hms.aio
import tpmon
from tests.support.project import ROOT


@pytest.mark.timeout(900)
def test_an_application_is_clean_under_the_strictest_checks():
    """An untyped corner of the library makes every line that touches it unchecked."""
    words = [sys.executable, "-m", "mypy", "--strict", "examples/typed_application.py"]

    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=850, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("line", "is_clean"), [("", True), ("hms.connect(5)\n", False)])
def test_an_application_is_clean_under_pyrights_strict_mode(tmp_path, line, is_clean):
    """Editors check with pyright, whose inference asks more of annotations than mypy does."""
    text = (ROOT / "examples" / "typed_application.py").read_text()
    (tmp_path / "application.py").write_text(text + line)
    checks = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "extraPaths": [str(ROOT)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(checks))
    words = [sys.executable, "-m", "basedpyright", "--project", str(tmp_path)]

    done = subprocess.run(words, capture_output=True, text=True, timeout=850, check=False)

    assert (done.returncode == 0) is is_clean, done.stdout + done.stderr


@pytest.mark.parametrize("module", [hms, hms.aio, tpmon, field_buffer])
def test_completion_offers_public_names_only(module):
    """Modules and helpers in the list hide what is meant to be used; "@" is of pytest itself."""
    offered = {name for name in dir(module) if not name.startswith(("__", "@"))}

    assert offered <= set(module.__all__)
