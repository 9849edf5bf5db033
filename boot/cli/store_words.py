"""What hms store says, in words for somebody who meets a damaged store for the first time."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hms.store.journal.gaps import Dropped
    from hms.store.journal.store_examination import Damage, Examination

__all__ = [
    "damage_lines",
    "dropped_line",
    "examination_line",
    "finalize_line",
    "next_steps",
    "upgrade_line",
]


def examination_line(found: "Examination") -> str:
    """The first line: is it good, and how much is in it."""
    segments = (
        f"{found.segments:,} segments of the log, {found.pinned_segments:,} pinned, "
        f"{found.history_segments:,} of the history"
    )
    held = (
        f"{segments}, {found.records:,} sound records, sequence numbers {found.first_lsn:,} to "
        f"{found.last_lsn:,}"
    )
    said = {
        "good": f"{found.path} is GOOD: {held}.",
        "torn": f"{found.path} is GOOD up to its last write: {held}.",
        "damaged": f"{found.path} is DAMAGED: {held}.",
    }[found.verdict]
    return "\n".join([said, *_in_use_lines(found), *_torn_lines(found)])


def upgrade_line(now: int, newest: int) -> str:
    """What a store that can be booted is written in, and what raises that."""
    if now == newest:
        return f"format {now}, the newest one of this version; there is nothing to raise"
    return (
        f"format {now}, which this version reads and goes on writing, so that the release before "
        f"can take it back; hms store finalize raises it to {newest}"
    )


def finalize_line(now: int, newest: int) -> str:
    """Asked before it is done."""
    return (
        f"The store goes from format {now} to {newest}. The release before cannot boot it then, "
        "nor take over a copy of it: upgrade the machines that hold copies first."
    )


def _in_use_lines(found: "Examination") -> Iterator[str]:
    if found.in_use_by is not None:
        yield (
            f"Process {found.in_use_by} has it in use. What it writes now cannot be judged; for a "
            "whole answer stop the node (hms down) and verify again."
        )


def _torn_lines(found: "Examination") -> Iterator[str]:
    torn = found.torn
    if torn is not None:
        yield (
            f"A write was cut short by a crash: {torn.size:,} bytes in {torn.file} from offset "
            f"{torn.offset:,}. Nothing of it had been confirmed, so nothing confirmed is lost. "
            "The next boot cuts it off: hms boot --warm"
        )


def damage_lines(found: "Examination") -> Iterator[str]:
    """Each damage with what it means, and then what to do."""
    for damage in found.damages:
        yield (
            f"\nDAMAGE in {damage.file} at offset {damage.offset:,}"
            + (f", from sequence number {damage.lsn:,}" if damage.lsn else "")
            + f": {damage.detail}."
        )
        yield f"  {_meaning(damage)}"
    if found.damages:
        yield from _cure(found)


def _meaning(damage: "Damage") -> str:
    if not damage.is_needed:
        return (
            "Only the history needs this file. The node boots and no waiting message is touched; "
            "reports and replay of that time are not complete."
        )
    if "missing" in damage.detail:
        return (
            "A file of the log was removed, or not restored. Confirmed messages were in it. The "
            "node does not boot without it, so that nothing is lost silently."
        )
    return (
        "The disk does not give back what was written. Messages that were confirmed may stand "
        "there. The node does not boot with this file, so that nothing is lost silently."
    )


def _cure(found: "Examination") -> Iterator[str]:
    yield "\nWhat to do:"
    yield f"  1. Change nothing in {found.path}. Copy the whole directory to another disk."
    yield "  2. Bring the files named above back from a backup, then hms store verify again."
    yield "  3. Without a backup save the rest; it is told exactly what is lost:"
    yield f"       hms store salvage {found.path} --to NEW_DIRECTORY"
    yield "  4. Look after the disk before the node boots on it again."


def dropped_line(gap: "Dropped") -> str:
    """One gap: where, which sequence numbers, how many records, between which messages."""
    if gap.last_lsn is None:
        numbers = f"everything from sequence number {gap.first_lsn:,} on, however much it was"
    elif gap.first_lsn in {0, gap.last_lsn}:
        word = "up to " if gap.first_lsn == 0 else ""
        numbers = f"sequence number {word}{gap.last_lsn:,}"
    else:
        numbers = f"sequence numbers {gap.first_lsn:,} to {gap.last_lsn:,}"
    records = "" if gap.records is None else f" ({gap.records} record)"
    place = f"{gap.file.name} at offset {gap.offset:,}"
    return f"{place}: {numbers}{records}{_between(gap)}"


def _between(gap: "Dropped") -> str:
    before, behind = gap.id_before, gap.id_behind
    if before is not None and behind is not None:
        return f"; messages sent there have ids between {before:012x} and {behind:012x}"
    if before is not None:
        return f"; messages sent there have ids above {before:012x}"
    if behind is not None:
        return f"; messages sent there have ids below {behind:012x}"
    return "; message ids are not known"


def next_steps(dropped: Sequence["Dropped"]) -> Iterator[str]:
    """What the loss means for those who use the node."""
    if any(gap.is_needed for gap in dropped):
        yield (
            "What was sent there is lost. What was acknowledged or deleted there comes again: a "
            "consumer may see a message twice. What was committed there may be gone or come again."
        )
    else:
        yield "Only the history loses by it: every waiting message is saved."
