"""A trial boot of a store that was restored: hms backup restore --check.

The node has the store and nothing else: no cluster, no resource manager, no server process, no
listener but a socket in a folder of this user. So it reaches nobody, and nobody reaches it.
"""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import hms
import hms.testing
from hms.boot.compose import uid_of
from hms.engine.topic.topic_space import RETAINED_PLACE
from hms.errors.catalogue import BackupRefused, BootFailed
from hms.history.backups.backup_manifest import Manifest

__all__ = ["Booted", "boot_restored", "domain_of"]

_COUNTED = ("waiting", "delayed", "in_flight")


class Booted(NamedTuple):
    """seconds: until it was ready; waiting: messages in all its places; differs: places that have
    another number than was restored, [restored, booted]."""

    seconds: float
    waiting: int
    differs: dict[str, list[int]]


def domain_of(manifest: Manifest, said: str, known: Sequence[str]) -> str:
    """The domain of the node that was backed up. said: by who asks; known: which it may be, where
    nobody says. BackupRefused where none fits the number that the store has."""
    uid = manifest.node_uid
    wanted = [said] if said else [manifest.domain] if manifest.domain else known
    for name in wanted:
        if uid_of(name, manifest.node, uid & 0xFF) == uid:
            return name
    if said:
        detail = f"{said!r} is not the domain of its node {manifest.node}"
    else:
        detail = f"it does not say the domain of its node {manifest.node}, as it was made by an"
        detail += " older version: say it with --domain, as [domain] of hms.conf had it then"
    raise BackupRefused(what=manifest.name, detail=detail)


def boot_restored(store: Path, manifest: Manifest, domain: str, restored: dict[str, int]) -> Booted:
    """Boot the store WARM, compare what waits at each place, and end the node: it is killed, as
    its store is removed next. BackupRefused."""
    with tempfile.TemporaryDirectory(prefix="hms-check-") as folder:
        began_s = time.monotonic()
        try:
            with hms.testing.node(
                store, _settings(manifest, domain, Path(folder)), warm=True
            ) as node:
                seconds = time.monotonic() - began_s
                with hms.connect(node.address, profile="") as connection:
                    found = {
                        f"{kind}:{_name(row)}": sum(row[word] for word in _COUNTED)
                        for kind in ("queue", "subscription")
                        for row in connection.administer(f"{kind}.list", {})
                    }
                    kept = connection.admin.messages("retained:#").everything().count()
                    found[f"retained:{RETAINED_PLACE}"] = kept.count
        except BootFailed as fault:  # it names a log, which is removed with all the rest
            detail = f"a node does not boot on the store that was restored: {fault.reason}"
            raise BackupRefused(what=manifest.node, detail=detail) from fault
    differs = {
        place: [count, found.get(place, 0)]
        for place, count in restored.items()
        if count != found.get(place, 0)
    }
    return Booted(round(seconds, 3), sum(found.values()), differs)


def _name(row: dict[str, Any]) -> str:
    """As a backup counts places: of a subscription with its topic."""
    return f"{row['name']}@{row['topic']}" if "topic" in row else str(row["name"])


def _settings(manifest: Manifest, domain: str, folder: Path) -> dict[str, Any]:
    group = {"SVGTYPE": "HMS", "NODENAME": manifest.node, "HMSINDEX": manifest.node_uid & 0xFF}
    own = {
        "listen": [f"ipc://{folder}/s"],
        "segment_bytes": manifest.segment_bytes,
        "max_transaction_bytes": min(16 << 20, manifest.segment_bytes // 4),
        "max_message_bytes": min(1 << 20, manifest.segment_bytes // 8),
    }
    # the node's number, which the store has, follows from the domain's name too
    groups = {"checked": group}
    return {"domain": {"name": domain}, "node": {manifest.node: own}, "svrgroup": groups}
