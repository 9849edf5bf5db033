"""What a server's process loads, and from where."""

import os
import subprocess
import sys

from tests.support.project import ROOT
from tpmon import module_loading

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
        timeout=60,
        check=True,
    )

    assert "tpmon.runtime" in ended.stdout
    loaded = ended.stdout.split()
    assert [name for name in loaded if name.startswith(NODE_ONLY)] == []
