"""The release before: what wrote format 2 of the log, taken out of the project's own history."""

import subprocess
import sys

from tests.support.project import ROOT

__all__ = ["COMMIT", "SOURCES", "Release", "release_before"]

COMMIT = "05974d7049b6c587d6ee255a19104693a064ad5d"
"""The last one that writes format 2 of the log."""
SOURCES = ("hms", "boot", "services", "workers", "setup.py", "pyproject.toml", "README.md")
"""hms/boot and others lead to the folders of these names."""


class Release:
    """Its sources, compiled, in a folder."""

    def __init__(self, folder):
        self.folder = folder

    @property
    def prefix(self):
        """What stands before a command of Python, so that it imports this release."""
        return ["env", f"PYTHONPATH={self.folder}"]

    def run(self, *words, timeout_s=300):
        """Its output; a program that fails says why."""
        line = [*self.prefix, sys.executable, "-P", *map(str, words)]
        done = subprocess.run(
            line, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=self.folder
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return done.stdout


def release_before(folder):
    """Make it in a folder."""
    git = ["git", "-C", str(ROOT), "archive", COMMIT, *SOURCES]
    taken = subprocess.run(git, capture_output=True, check=False)
    assert taken.returncode == 0, f"git fetch --unshallow: {taken.stderr.decode()}"
    subprocess.run(["tar", "-x", "-C", str(folder)], input=taken.stdout, check=True)
    made = Release(folder)
    made.run("setup.py", "-q", "build_ext", "--inplace")
    return made
