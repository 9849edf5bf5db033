"""Roles: a standby says in a file beside the pid file what it waits for."""

import json
import os
import time
from pathlib import Path
from typing import Any

from hms.boot.entries import Node

__all__ = ["forget_role", "is_standing_by", "role_of", "tell_role"]


def _file(node: Node) -> Path:
    return node.runtime / f"{node.name}.standby"


def tell_role(node: Node, waits_for: str, store: str) -> None:
    """This process waits; written beside and renamed, so that no reader finds half of it."""
    node.runtime.mkdir(mode=0o750, parents=True, exist_ok=True)
    said = {"pid": os.getpid(), "role": "standby", "waits_for": waits_for, "store": store}
    half = _file(node).with_name(f"{_file(node).name}.new")
    half.write_text(json.dumps({**said, "since_ms": time.time_ns() // 1_000_000}))
    half.replace(_file(node))


def role_of(node: Node, pid: int) -> dict[str, Any] | None:
    """What a standby with that process id waits for; None when it is none."""
    try:
        said = json.loads(_file(node).read_text())
    except (OSError, ValueError):
        return None
    return said if isinstance(said, dict) and said.pop("pid", 0) == pid else None


def is_standing_by(node: Node) -> bool:
    """A process of this machine lives that says that it waits."""
    try:
        said = json.loads(_file(node).read_text())
        os.kill(int(said["pid"]), 0)
    except (OSError, ValueError, TypeError, KeyError):
        return False
    return True


def forget_role(node: Node) -> None:
    """It waits no longer."""
    _file(node).unlink(missing_ok=True)
