"""What a server's process loads, and from where."""

import os
import subprocess
import sys
import traceback

import pytest

from hms.errors.catalogue import ServiceModuleError
from tests.support.project import ROOT
from tpmon import module_loading
from tpmon.module_loading import load

NODE_ONLY = (
    "hms.engine",
    "hms.store",
    "hms.history",
    "workers",
    "services",
    "boot",
    "hms.server.broker",
)


def test_the_applications_folders_come_before_all_others(monkeypatch, tmp_path):
    """Its package may be called services too; its child processes find their modules as well."""
    users = f"{tmp_path}/a{os.pathsep}{tmp_path}/b"
    monkeypatch.setenv(module_loading.USER_PATH, users)
    monkeypatch.setenv("PYTHONPATH", "/ours")
    monkeypatch.setattr(sys, "path", ["/ours", f"{tmp_path}/b", "/library"])

    module_loading.put_first([tmp_path / "app"])

    wanted = [f"{tmp_path}/{name}" for name in ("app", "a", "b")]
    assert sys.path == [*wanted, "/ours", "/library"]
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [*wanted, "/ours"]
    assert module_loading.USER_PATH not in os.environ


def test_a_servers_process_loads_nothing_of_the_node():
    """A project's own boot, services and workers must still be free to be imported."""
    program = "import sys, tpmon.server; print(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=250,
        check=True,
    )

    assert "tpmon.runtime" in ended.stdout
    loaded = ended.stdout.split()
    assert [name for name in loaded if name.startswith(NODE_ONLY)] == []


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The first place where modules are looked for."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


@pytest.mark.parametrize("name", ["./bar.py", "/srv/bar", "bar py", ".bar", ""])
def test_a_file_that_is_given_for_a_module_is_refused_with_the_way_to_name_it(folder, name):
    """It said: the 'package' argument is required to perform a relative import."""
    with pytest.raises(ServiceModuleError, match="named as in an import"):
        load([name])


@pytest.mark.parametrize(("name", "missing"), [("no_bar", "no_bar"), ("no_bar.inner", "no_bar")])
def test_a_module_that_is_not_there_is_said_to_be_missing_without_a_traceback(
    folder, name, missing
):
    """There is no line of anybody that could show more."""
    with pytest.raises(ServiceModuleError, match=f"no module {missing} in {folder}") as refused:
        load([name])
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("text", ["import no_such_thing", "1 / 0"])
def test_a_module_that_fails_is_shown_from_its_own_line_on(folder, text):
    """How it came to be imported tells nobody anything."""
    (folder / "failing_bar.py").write_text(text)
    with pytest.raises(ServiceModuleError) as refused:
        load(["failing_bar"])

    shown = traceback.extract_tb(refused.value.__cause__.__traceback__)
    assert [frame.filename for frame in shown] == [str(folder / "failing_bar.py")]
