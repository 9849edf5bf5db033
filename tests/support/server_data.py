"""The data of a database server: made once for all tests of a process, copied for each server."""

import atexit
import shutil
import subprocess
import tempfile
from pathlib import Path


def kept_folder(prefix):
    """A folder that goes with the process."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def copied(data, target):
    """Owners and modes as they are: a server refuses to start with others."""
    subprocess.run(["cp", "-a", "--sparse=always", str(data), str(target)], check=True)
