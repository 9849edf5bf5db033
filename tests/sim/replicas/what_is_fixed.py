"""What all of a world's copies have in common."""

from pathlib import Path

FOLDER = Path("/copy")
LOG, UID, LEASE_S, SEGMENT = "1f" * 16, 7, 5.0, 4096
