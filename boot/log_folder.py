"""Where the log of a node lies."""

from pathlib import Path

from hms.boot.entries import Node

__all__ = ["log_folder"]


def log_folder(node: Node) -> Path:
    """Where the log of a node lies now."""
    if not node.shared:
        return node.store
    from hms.store.shared import present_folder  # noqa: PLC0415 - a status loads no store

    return present_folder(node.store)
