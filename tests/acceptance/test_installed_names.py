"""A user's project whose own modules are called as folders of ours: nothing of it is hidden, and
nothing of ours is loaded in its place, installed as a wheel and as an editable install."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

OWN = ("boot.py", "services/__init__.py", "workers/__init__.py", "tests/__init__.py")

FILES = {
    "services/shop.py": """
import boot, services, workers
from tpmon import service

@service("PRICE")
def price(request):
    owners = f"{boot.OWNER}, {services.OWNER}, {workers.OWNER}"
    return {"owners": owners, "cents": 250 * request.data["cups"]}
""",
    "tests/test_shop.py": """
import boot, services, workers
import hms, hms.testing

def test_queue(hms_connection):
    assert {boot.OWNER, services.OWNER, workers.OWNER} == {"the project"}
    with hms_connection.session() as session:
        session.producer(hms.Queue("orders")).send("a coffee")
        assert session.consumer(hms.Queue("orders")).receive(timeout_s=60).body == "a coffee"

def test_service():
    with hms.testing.node(serve=["services.shop"], python_path=["."]) as node:
        with hms.connect(node.address) as connection:
            answer = connection.call("PRICE", {"cups": 2}, timeout_s=60).data
    assert answer == {"owners": "the project, the project, the project", "cents": 500}
""",
}

TOP_LEVEL = ("field_buffer", "hms", "tpmon")


@pytest.fixture
def project(tmp_path):
    """The user's project."""
    folder = tmp_path / "project"
    for name in OWN:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("OWNER = 'the project'\n")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="session")
def installed(tmp_path_factory, project_root):
    """What a wheel installs, in a folder of its own."""
    target = tmp_path_factory.mktemp("installed")
    source = tmp_path_factory.mktemp("source") / "hms"
    no_source = ("build", "*.egg-info", "*.so", "__pycache__")  # and written meanwhile by others
    left_out = shutil.ignore_patterns(".*", "tests", "docs", *no_source)
    shutil.copytree(project_root, source, symlinks=True, ignore=left_out)
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    words += ["--no-build-isolation", "--target"]  # else it asks a registry for setuptools
    subprocess.run(
        [*words, str(target), str(source)],
        check=True,
        capture_output=True,
        timeout=250,
        env=os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    return target


def _run(project: Path, words: list[str], path: list[Path]) -> str:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    done = subprocess.run(
        words, cwd=project, env=env, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_wheel_installs_three_names(installed):
    """A fourth one would be found instead of a module of the user's, or the other way round."""
    names = {entry.name for entry in installed.iterdir() if entry.is_dir()}

    assert {name for name in names if not name.endswith(".dist-info")} == {*TOP_LEVEL, "bin"}


def test_a_wheel_has_the_sample(installed, project_root):
    """In the repository it is a link, and hms config init writes it."""
    sample = installed / "hms" / "boot" / "sample.conf"

    assert sample.read_text() == (project_root / "hms.conf").read_text()


@pytest.mark.parametrize("way", ["wheel", "editable"])
def test_a_project_keeps_its_own_names(project, installed, way):
    """Client, server process, pytest's plugin and command line, beside modules named as ours."""
    path = [project, *([installed] if way == "wheel" else [])]

    _run(project, [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"], path)

    where = "import hms, hms.boot; print(hms.__file__)"
    found = _run(project, [sys.executable, "-c", where], path)
    assert found.startswith(str(installed)) is (way == "wheel")
    says = _run(project, [sys.executable, "-m", "hms.boot", "errors", "show", "4012"], path)
    assert "HMS-4012" in says
