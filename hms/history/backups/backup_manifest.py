"""The manifest of a backup: what it is of, up to where, and the digest of each of its files.

A backup is a folder with manifest.json, the segments of the log, and the files of file messages in
files/. The manifest's own digest covers all else that it says.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import msgspec

from hms.errors.catalogue import BackupRefused

__all__ = [
    "MANIFEST",
    "Manifest",
    "StoredFile",
    "digest_of",
    "read_manifest",
    "sync_folder",
    "write_manifest",
]

MANIFEST, FILES = "manifest.json", "files"
FORMAT, VERSION = "hms-backup", 1
READ_BYTES = 1 << 20


class StoredFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a backup, by its path in it."""

    name: str
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """until_lsn: the first sequence number that is not part of it; first_segment, last_segment: of
    this backup alone; oldest: the first segment that is needed with those it follows; base: the
    backup that it follows, "" for none; next_id: no message has this id or a higher one; counts:
    how many messages wait at each place."""

    name: str
    node: str
    node_uid: int
    store: str
    until_lsn: int
    first_segment: int
    last_segment: int
    oldest: int
    segment_bytes: int
    next_id: int
    created_ms: int
    base: str
    counts: dict[str, int]
    files: list[StoredFile]
    hms_version: str = ""
    store_version: int = 0
    is_shipped: bool = False
    """Every record was read back, but nobody recovered the log or counted: counts is empty."""
    domain: str = ""
    """The domain of the node, as node_uid follows from it; "" in one that an older version made."""
    format: str = FORMAT
    version: int = VERSION


def digest_of(path: Path) -> StoredFile:
    """Size and digest of a file."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as source:
        while data := source.read(READ_BYTES):
            digest.update(data)
            size += len(data)
    return StoredFile(path.name, size, digest.hexdigest())


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write it, synced: with it a backup is there."""
    said = msgspec.to_builtins(manifest)
    said["sha256"] = _own_digest(said)
    path = folder / MANIFEST
    with path.open("w") as out:
        out.write(json.dumps(said, indent=1, sort_keys=True) + "\n")
        out.flush()
        os.fsync(out.fileno())
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """The names in a folder are safe."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a backup, as it was written; BackupRefused that names the file."""
    path = folder / MANIFEST
    try:
        data = path.read_bytes()
        said: Any = json.loads(data)
    except (OSError, ValueError) as fault:
        raise BackupRefused(what=str(path), detail=f"it cannot be read: {fault}") from fault
    if not isinstance(said, dict) or said.get("format") != FORMAT:
        raise BackupRefused(what=str(path), detail="it is no manifest of a backup")
    if said.get("version") != VERSION:
        detail = f"it is of version {said.get('version')}; this one reads {VERSION}"
        raise BackupRefused(what=str(path), detail=detail)
    told = said.pop("sha256", "")
    canonical = json.dumps({**said, "sha256": told}, indent=1, sort_keys=True) + "\n"
    if told != _own_digest(said) or canonical.encode() != data:
        raise BackupRefused(what=str(path), detail="it was altered: its digest does not fit")
    try:
        manifest = msgspec.convert(said, Manifest)
    except msgspec.ValidationError as fault:
        raise BackupRefused(what=str(path), detail=str(fault)) from fault
    # A path from a backup that somebody else has made must lead nowhere else.
    for name in (manifest.base, *(one.name.removeprefix(f"{FILES}/") for one in manifest.files)):
        if name in (".", "..") or "/" in name or "\0" in name:
            detail = f"{name[:80]!r} is no name of a file in it"
            raise BackupRefused(what=str(path), detail=detail)
    return manifest


def _own_digest(said: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
