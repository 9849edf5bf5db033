"""Whether a file system can carry a shared store: what its mount says of it.

A rename has to be seen by the other machine with its next call, and a lock has to end with its
holder. NFSv3 has no leases; NFSv4 with cached attributes shows old names for seconds; SMB does
neither. A local file system is mounted by one machine: that mount is the fence.
"""

from pathlib import Path
from typing import NamedTuple

from hms.errors.catalogue import SharedStoreUnsafe

__all__ = ["Mount", "check_mount", "mount_of"]

MOUNTS = Path("/proc/self/mountinfo")
_ESCAPES = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


class Mount(NamedTuple):
    """Where a file system is mounted, its type and its options."""

    point: Path
    kind: str
    options: frozenset[str]


def check_mount(path: Path, mounts: str | None = None) -> None:
    """SharedStoreUnsafe when the file system of a path cannot carry a shared store."""
    found = mount_of(path, MOUNTS.read_text() if mounts is None else mounts)
    if found is None:
        return
    failed = _failed(found)
    if failed:
        options = ",".join(sorted(found.options))
        raise SharedStoreUnsafe(path=str(path), fstype=found.kind, options=options, failed=failed)


def mount_of(path: Path, mounts: str) -> Mount | None:
    """The mount that a path lies on, by the text of /proc/self/mountinfo."""
    best: Mount | None = None
    for line in mounts.splitlines():
        words, _, rest = line.partition(" - ")
        fields, said = words.split(), rest.split()
        if len(fields) < 6 or len(said) < 1:  # noqa: PLR2004 - as the manual of proc says
            continue
        point = Path(_plain(fields[4]))
        if not path.is_relative_to(point):
            continue
        if best is None or len(point.parts) >= len(best.point.parts):
            options = frozenset(fields[5].split(",")) | frozenset((said[2:] or [""])[0].split(","))
            best = Mount(point, said[0], options)
    return best


def _failed(mount: Mount) -> str:
    kind, options = mount.kind, mount.options
    if kind in ("cifs", "smb3", "smbfs"):
        return "SMB neither renames folders that are in use nor ends locks with their holder"
    if kind not in ("nfs", "nfs4"):
        return ""
    version = next((one for one in options if one.startswith("vers=")), "vers=")
    if not version.startswith("vers=4"):
        return f"{version or 'this version'} has no leases; mount it with vers=4.1"
    missing = [one for one in ("noac", "lookupcache=none") if one not in options]
    return f"names are cached; mount it with {','.join(missing)}" if missing else ""


def _plain(word: str) -> str:
    for escape, character in _ESCAPES.items():
        word = word.replace(escape, character)
    return word
