"""What hms bench says: the figures, and beside them what the disk can do."""

import tempfile
from pathlib import Path
from typing import Any

from hms.boot.bench.load import Load
from hms.boot.cli.figures import QUANTILES, measure_disk, percentiles_ms
from hms.boot.cli.load import Received, Sent
from hms.boot.cli.target import Target

__all__ = ["report"]


def report(
    target: Target,
    about: dict[str, Any],
    load: Load,
    sent: Sent | None,
    found: Received | None,
    disk: Path | None,
) -> None:
    """Print what was sent or found, or both; then it is what was found that counts."""
    said = {**about, "size": load.size, "count": load.count, "rate": load.rate}
    if found is not None:
        said |= _throughput(load, found.count, found.seconds)
        said["latency_ms"] = percentiles_ms(found.times_ns)
        if found.strangers:
            said["messages_of_others"] = found.strangers
    elif sent is not None:
        said |= _throughput(load, load.count, sent.seconds)
    if sent is not None:
        said["confirm_ms"] = percentiles_ms(sent.times_ns)
        said = _with_disk(target, said, load, disk)
    _say(target, said)


def _throughput(load: Load, count: int, seconds: float) -> dict[str, Any]:
    rate = count / seconds if seconds else 0.0
    return {
        "messages": count,
        "seconds": round(seconds, 3),
        "messages_per_s": round(rate, 1),
        "mib_per_s": round(rate * load.size / (1 << 20), 2),
    }


def _with_disk(
    target: Target, said: dict[str, Any], load: Load, folder: Path | None
) -> dict[str, Any]:
    """What the disk does with the same bytes, and the ratio of the two."""
    if not load.is_durable or load.rate:
        return said  # there is nothing to compare: the disk is not what sets the pace
    chosen = folder or _disk_of(target)
    batch = min(load.window, load.count)
    bare = measure_disk(chosen, message_bytes=load.size, count=load.count, batch=batch)
    disk = {"folder": str(chosen), "messages_per_s": round(bare, 1), "batch": batch}
    return {**said, "disk": disk, "ratio_to_disk": round(said["messages_per_s"] / bare, 3)}


def _disk_of(target: Target) -> Path:
    """The folder of the node's store; the temporary one when only an address is known."""
    if target.address:
        return Path(tempfile.gettempdir())
    return target.config().node(target.node_name).store.parent


def _say(target: Target, said: dict[str, Any]) -> None:
    kind = {True: "durable ", False: "non-durable ", None: ""}[said.get("durable")]
    window = f", {said['in_flight']} in flight" if said.get("in_flight") else ""
    what = f"{said['what']}: {said['messages']} {kind}messages of {said['size']} bytes"
    lines = [
        f"{what} in {said['seconds']} s{window}",
        f"  {said['messages_per_s']:,.0f} messages/s, {said['mib_per_s']} MiB/s",
    ]
    for name in ("confirm_ms", "latency_ms"):
        if times := said.get(name):
            spelt = "  ".join(f"{q} {times[q]} ms" for q in (*QUANTILES, "max"))
            lines.append(f"  {name.removesuffix('_ms'):8} {spelt}")
    if disk := said.get("disk"):
        rate = f"{disk['messages_per_s']:,.0f} messages/s in {disk['folder']}"
        lines.append(f"  bare disk {rate}: the node reaches {said['ratio_to_disk']} of it")
    if others := said.get("messages_of_others"):
        lines.append(f"  {others} messages of others were taken too: use a queue of its own")
    target.say("\n".join(lines), said)
