"""Package: what a cluster needs of us, as one file for spark-submit --py-files."""

import importlib.util
import zipfile
from pathlib import Path

from hms.errors.catalogue import HistoryError

__all__ = ["JOB", "ZIP", "write_package"]

ZIP, JOB = "hms-history.zip", "hms-history.py"
_PACKAGES = ("field_buffer", "hms", "tpmon")
_JOB = '''"""hms history as a job: spark-submit --py-files hms-history.zip hms-history.py replay"""

import sys

from hms.errors.tree import HmsError
from hms.history.command import history

try:
    history()
except HmsError as error:
    sys.exit(f"hms: {error}")
'''


def write_package(folder: Path) -> tuple[Path, Path]:
    """Write the packages and the job into a folder; where they are."""
    packed, job = folder / ZIP, folder / JOB
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as out:
            for name in _PACKAGES:
                root = _folder_of(name)
                for file in sorted(root.rglob("*")):
                    if file.is_file() and "__pycache__" not in file.parts:
                        out.write(file, Path(name) / file.relative_to(root))
        job.write_text(_JOB, encoding="utf-8")
    except OSError as fault:
        raise HistoryError(detail=f"{folder} cannot be written: {fault.strerror}") from fault
    return packed, job


def _folder_of(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None, f"{name} is part of us"
    assert spec.origin is not None, f"{name} is a package with code"
    return Path(spec.origin).parent
