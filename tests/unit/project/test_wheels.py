"""Wheels, and that none lacks the C extension without a word; the container.

The long forms build a wheel and try it in a fresh environment, and a Debian with what the container
has (as root):

    HMS_WHEEL=1 scripts/test tests/unit/project/test_wheels.py
    HMS_CONTAINER=1 scripts/test tests/unit/project/test_wheels.py
"""

import json
import os
import subprocess
import sys
import tomllib

import pytest
from click.testing import CliRunner

from hms.boot.cli import main
from tests.support.project import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize(("required", "is_built"), [("1", False), ("", True)])
def test_a_build_without_a_compiler_fails_where_the_extension_is_required(
    required, is_built, tmp_path
):
    """A wheel without it works, at a third of the speed, and nobody would know why."""
    command = [sys.executable, "setup.py", "-q", "build_ext"]
    folders = [f"--build-temp={tmp_path}", f"--build-lib={tmp_path}"]
    environment = os.environ | {"CC": "false", "HMS_REQUIRE_NATIVE": required}
    done = subprocess.run(
        [*command, *folders], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) is is_built, done.stderr
    assert "false" in done.stderr  # the compiler's name
    assert list(tmp_path.rglob("*.so")) == []


def test_wheels_are_built_for_every_python_that_the_project_takes():
    """With the extension, and tried before they are given away."""
    wanted = PROJECT["tool"]["cibuildwheel"]
    assert wanted["build"] == "cp311-* cp312-* cp313-* cp314-*"
    assert wanted["environment"]["HMS_REQUIRE_NATIVE"] == "1"
    assert wanted["linux"]["archs"] == ["x86_64", "aarch64"]
    assert "HMS_PURE" not in wanted["test-command"]
    assert (ROOT / "scripts" / "wheel-check").exists()


if "HMS_WHEEL" in os.environ:

    @pytest.mark.timeout(900)
    def test_a_wheel_is_built_repaired_installed_and_tried(tmp_path):
        """As a release does it."""
        command = [str(ROOT / "scripts" / "wheel"), str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        (wheel,) = (tmp_path / "repaired").glob("*.whl")
        assert "manylinux" in wheel.name


def test_a_container_is_made_of_what_is_there():
    """The file is not run where there is no container runtime, what it runs is."""
    folder = ROOT / "packaging" / "container"
    text = (folder / "Containerfile").read_text()
    assert "packaging/container/install" in text
    assert os.access(folder / "install", os.X_OK)
    assert "USER 7780" in text
    (check,) = [line for line in text.splitlines() if line.startswith("HEALTHCHECK")]
    words = json.loads(check.partition("CMD ")[2])
    assert CliRunner().invoke(main, [*words[1:], "--help"]).exit_code == 0
    assert subprocess.run(["sh", "-n", str(folder / "install")], check=False).returncode == 0


if "HMS_CONTAINER" in os.environ:

    @pytest.mark.timeout(1800)
    def test_a_node_boots_in_what_the_container_is_made_of(tmp_path):
        """In a Debian of its own, as the user of the container."""
        command = [str(ROOT / "scripts" / "container"), str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
