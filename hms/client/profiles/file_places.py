"""Where hms-client.toml is looked for; without a file a connection costs two looks, and no more."""

import os
from pathlib import Path

__all__ = ["HOME_FILE", "VARIABLE", "WORKING_FILE", "find_file", "home_file"]

VARIABLE = "HMS_CLIENT_CONFIG"
WORKING_FILE = "hms-client.toml"
HOME_FILE = "~/.config/hms/client.toml"


def find_file() -> tuple[Path, bool] | None:
    """The file that is read, and whether it was found in the working directory without being named;
    None where there is none."""
    named = os.environ.get(VARIABLE, "")
    if named == os.devnull:
        return None
    if named:
        return _absolute(os.path.expanduser(named)), False  # noqa: PTH111 - no error without a home
    if os.path.lexists(WORKING_FILE):
        return _absolute(WORKING_FILE), True
    home = home_file()
    return None if home is None else (home, False)


def home_file() -> Path | None:
    """The user's own file; None where there is none."""
    path = os.path.expanduser(HOME_FILE)  # noqa: PTH111 - no error without a home
    return Path(path) if os.path.lexists(path) else None


def _absolute(path: str) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 - a link is not followed
