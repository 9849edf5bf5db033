"""Starts the process that watches a node which leads its copies (replica_guard)."""

import logging
import os
import subprocess
import sys
from typing import Final

from hms.boot.entries import Config, Node

__all__ = ["Guarding"]

log = logging.getLogger("hms.replicas")

JOIN_S: Final = 10.0


class Guarding:
    """The guard of this process, for one epoch."""

    def __init__(self, config: Config, node: Node, epoch: int) -> None:
        words = [sys.executable, "-P", "-m", "hms.boot.replica_guard", str(os.getpid())]
        words += [str(config.path), node.name, str(epoch)]
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603
        except OSError as fault:
            log.warning("a crash is noticed by the end of the lease only: %s", fault)

    def stop(self) -> None:
        """The lease was given back."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait(JOIN_S)
        assert self._process.stdin is not None
        self._process.stdin.close()
