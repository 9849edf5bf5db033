"""hms completion: the shells' scripts, and names from the configuration without asking a node."""

import os
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from hms.boot.cli import main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(shell):
    """It calls hms with the variable that click reads."""
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0
    assert f"_HMS_COMPLETE={shell}_complete" in done.output


def test_bash_takes_the_script(tmp_path):
    """A script with a fault is told at every login."""
    script = CliRunner().invoke(main, ["completion", "bash"]).output
    done = subprocess.run(["bash", "-n"], input=script, text=True, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("words", "start", "expected"),
    [
        (["queue", "show"], "o", ["orders", "old"]),
        (["topic", "show"], "", ["news"]),
        (["send"], "n", ["news"]),
        ([], "que", ["queue"]),
    ],
)
def test_names_are_those_of_the_configuration(tmp_path, monkeypatch, words, start, expected):
    """A node that is down, or that wants a password, must not keep the shell waiting."""
    file = tmp_path / "hms.conf"
    file.write_text("[hms.queue.orders]\n[hms.queue.old]\n[hms.topic.news]\n")
    monkeypatch.setenv("HMS_CONFIG", str(file))
    complete = ShellComplete(main, {}, "hms", "_HMS_COMPLETE")
    assert [item.value for item in complete.get_completions(words, start)] == expected


def test_a_configuration_that_cannot_be_read_completes_nothing(tmp_path, monkeypatch):
    """And says nothing, in the midst of a line that is being typed."""
    monkeypatch.setenv("HMS_CONFIG", str(tmp_path / "none"))
    complete = ShellComplete(main, {}, "hms", "_HMS_COMPLETE")
    assert complete.get_completions(["queue", "show"], "") == []
    (tmp_path / "none").write_text("hms = 3\n[x")
    assert complete.get_completions(["queue", "show"], "") == []


def test_completing_loads_no_messaging(project_root):
    """300 ms are what a person at the tabulator bears."""
    code = "import sys; from hms.boot.cli import main; main(prog_name='hms')"
    environment = os.environ | {
        "_HMS_COMPLETE": "bash_complete",
        "COMP_WORDS": "hms queue show ",
        "COMP_CWORD": "3",
    }
    code = f"import atexit, sys\natexit.register(lambda: print('zmq' in sys.modules))\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project_root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "False", done.stderr
