"""Backups of a node's log: made while it works, verified by recovery, restored to a moment."""
