"""What a check of hms doctor says, and of what."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from hms.boot.doctor.disk_probe import Sync
from hms.boot.doctor.machine import Machine
from hms.boot.entries import Config, Node
from hms.errors.catalogue import NodeNotRunning

__all__ = ["Ask", "Check", "Finding", "Patient", "Verdict", "found"]

SYNCS = 200
Ask = Callable[[str, str], Any]
"""Asks a node, by its name, a question without arguments; HmsError."""


def _nobody(node: str, _verb: str) -> Any:
    raise NodeNotRunning(node=node)


class Verdict(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """paths: whose modes --fix sets."""

    check: str
    verdict: Verdict
    value: str
    why: str = ""
    cure: str = ""
    paths: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Patient:
    """What is examined."""

    config: Config
    node: Node
    machine: Machine
    sync: Sync = os.fdatasync
    syncs: int = SYNCS
    sync_folder: Sync = os.fsync
    ask: Ask = _nobody
    backups: Path | None = None
    """Where `hms backup` puts them; None: where the node's configuration says."""

    @property
    def store(self) -> Path:
        """The store's folder, or the nearest above that exists."""
        path = self.node.store
        while not path.exists() and path != path.parent:
            path = path.parent
        return path


Check = Callable[[Patient], Finding | None]


def found(name: str, verdict: Verdict, value: str, why: str, cure: str) -> Finding:
    """A finding; one that is well has neither reason nor cure."""
    is_good = verdict is Verdict.OK
    return Finding(name, verdict, value, "" if is_good else why, "" if is_good else cure)
