"""hms backup: a copy of a node's store while it works, and a new store from one."""

import json
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from hms.boot.cli.cells import written_time
from hms.boot.cli.target import Target, show_table, show_values, target_options
from hms.boot.cli.time_spans import SPAN
from hms.boot.counts import counted
from hms.errors.catalogue import BackupRefused

if TYPE_CHECKING:
    from hms.history.backups.backup_creation import Subject
    from hms.history.backups.backup_manifest import Manifest
    from hms.history.backups.backup_restoration import Restored
    from hms.history.backups.shipping import Shipped

__all__ = ["backup"]

backup = click.Group("backup", help="Backups: create, list, verify and restore them.")
_FOLDER = click.Path(path_type=Path, file_okay=False)
_TO = click.option(
    "--to", type=_FOLDER, help="The folder of the backups.  [default: backups of the node]"
)
_WITH_SECRETS = click.option(
    "--with-secrets",
    is_flag=True,
    help="The security file too: users, roles, hashes of passwords.",
)
LATEST = "latest"
DIFFERS = 3
USUAL_DOMAIN = "hms"
"""Of a node of which hms.conf says none."""


@backup.command()
@target_options
@_TO
@click.option("--since", default="", help="What came after this backup only; latest: the last.")
@click.option("--rate", type=click.IntRange(1), help="So many MiB a second at most.")
@_WITH_SECRETS
@click.option("--attended", is_flag=True, hidden=True, help="Another process seals: the console.")
def create(
    target: Target,
    to: Path | None,
    since: str,
    rate: int | None,
    with_secrets: bool,
    attended: bool,
) -> None:
    """Copy the store of a node that works, and verify the copy.

    The files of messages are part of it, and hms.conf; keys and passwords are not, and the file
    that [node.NAME] names under security, with users and roles, is with --with-secrets alone.
    """
    from hms.history.backups.backup_chain import backups_in  # noqa: PLC0415 - not for --help
    from hms.history.backups.backup_creation import create as make  # noqa: PLC0415 - the same

    to = _place(target, to)
    if since == LATEST:
        known = backups_in(to)
        since = known[-1].name if known else ""
    with ExitStack() as opened:
        seals: Callable[[Manifest | None], int]
        if attended:
            seals, tell = _asked_seal, _tell_progress
        else:
            seals, tell = _seals(opened.enter_context(target.connection()), to, since), _tell_nobody
        subject = _subject(target, seals, is_with_secrets=with_secrets)
        rate_bytes = (rate or 0) << 20
        began_s = time.monotonic()
        path, manifest = make(subject, to, base=since, bytes_a_second=rate_bytes, tell=tell)
    size = sum(one.bytes for one in manifest.files)
    waiting = sum(manifest.counts.values())
    text = f"{path}: {size} bytes, up to {manifest.until_lsn - 1}, {waiting} messages wait"
    said = {"backup": str(path), "bytes": size, "lsn": manifest.until_lsn - 1}
    said |= {"waiting": waiting, "base": since, "verified": True}
    target.say(text, said | {"seconds": round(time.monotonic() - began_s, 3)})


def _seals(
    connection: Any, to: Path, since: str, *, is_shipped: bool = False
) -> Callable[["Manifest | None"], int]:
    """Has the node seal its log; the first offset behind it."""
    from hms.history.seals import seal  # noqa: PLC0415 - not for --help

    about = {"to": str(to), "base": since} | ({"is_shipped": True} if is_shipped else {})

    def ask(shipped: "Manifest | None") -> int:
        has = {} if shipped is None else {"since": shipped.until_lsn, "store": shipped.store}
        return seal(connection, "backup.create", **about, **has)

    return ask


def _asked_seal(_shipped: "Manifest | None") -> int:
    """The same, by the process that has begun this one, with the login of its user: this one asks
    for it in a line, and reads the answer."""
    click.echo(json.dumps({"ask": "seal"}))
    try:
        said = json.loads(sys.stdin.readline())
    except ValueError:
        said = {"fault": "nobody answers who has the node seal its log"}
    if "fault" in said:
        raise click.ClickException(said["fault"])
    return int(said["offset"])


def _tell_progress(done: int, total: int) -> None:
    click.echo(json.dumps({"done": done, "total": total}))


def _tell_nobody(done: int, total: int) -> None:
    """Who waits for the command sees its end."""


def _subject(
    target: Target, seals: Callable[["Manifest | None"], int], *, is_with_secrets: bool
) -> "Subject":
    from hms.boot.calendar import CronCalendar  # noqa: PLC0415 - not for --help
    from hms.boot.compose import hms_version  # noqa: PLC0415 - the same
    from hms.boot.log_folder import log_folder  # noqa: PLC0415 - the same
    from hms.errors.catalogue import NotSupported  # noqa: PLC0415 - the same
    from hms.history.backups.backup_creation import Subject  # noqa: PLC0415 - the same

    config = target.config()
    node = config.node(target.node_name)
    if node.database is not None:
        raise NotSupported(
            feature="hms backup of a database store",
            instead="Use the database's own tools, and copy store/files with it.",
        )
    if is_with_secrets and node.security is None:
        raise click.UsageError(f"--with-secrets: [node.{node.name}] names no security file")
    store, extras = log_folder(node), {"hms.conf": config.path}
    extras |= {"security.toml": node.security} if is_with_secrets and node.security else {}
    calendar, domain = CronCalendar(), config.domain.name
    return Subject(store, node.name, seals, calendar, hms_version(), extras, domain)


@backup.command()
@target_options
@_TO
@click.option(
    "--every", type=SPAN, default="60s", show_default=True, help="How old the last may become."
)
@click.option(
    "--full-every", type=SPAN, default="24h", show_default=True, help="A full backup so often."
)
@click.option("--keep", type=click.IntRange(1), help="Prune: so many full backups stay.")
@click.option("--rate", type=click.IntRange(1), help="So many MiB a second at most.")
@click.option("--rounds", type=click.IntRange(1), help="End after so many.")
@_WITH_SECRETS
def ship(
    target: Target,
    to: Path | None,
    every: float,
    full_every: float,
    keep: int | None,
    rate: int | None,
    rounds: int | None,
    with_secrets: bool,
) -> None:
    """Copy what the log of a node has sealed, again and again, until it is interrupted.

    Each round is a backup that follows the one before, so that a store can be restored to any
    moment. A round in which nothing was written makes none. A node that does not answer is waited
    for.
    """
    from hms.errors.tree import HmsError  # noqa: PLC0415 - not for --help
    from hms.history.backups.shipping import ship as one_round  # noqa: PLC0415 - the same

    to = _place(target, to)
    pause: Callable[[float], None] = time.sleep
    number = 0
    while True:
        began_s = time.monotonic()
        try:
            with target.connection() as connection:
                seals = _seals(connection, to, LATEST, is_shipped=True)
                subject = _subject(target, seals, is_with_secrets=with_secrets)
                done = one_round(
                    subject, to, full_every_s=full_every, bytes_a_second=(rate or 0) << 20
                )
            _say_shipped(target, done)
            if keep is not None and done.is_full and done.is_new:
                _prune(target, to, keep, 0)
        except HmsError as fault:
            if rounds is not None:
                raise
            click.echo(f"not shipped: {fault}", err=True)
        number += 1
        if rounds is not None and number >= rounds:
            return
        pause(max(0.0, every - (time.monotonic() - began_s)))


def _say_shipped(target: Target, done: "Shipped") -> None:
    manifest = done.manifest
    said: dict[str, Any] = {"backup": str(done.backup), "lsn": manifest.until_lsn - 1}
    said |= {"base": manifest.base, "new": done.is_new}
    if not done.is_new:
        text = f"{done.backup}: up to date, nothing was written since {manifest.until_lsn - 1}"
        target.say(text, said | {"bytes": 0, "why": ""})
        return
    size = sum(one.bytes for one in manifest.files)
    what = f"full, {done.why}" if done.is_full else f"follows {manifest.base}"
    text = f"{done.backup}: {size} bytes, up to {manifest.until_lsn - 1}; {what}"
    target.say(text, said | {"bytes": size, "why": done.why})


@backup.command()
@target_options
@click.argument("folder", type=_FOLDER)
@click.option("--keep", type=click.IntRange(1), default=1, show_default=True, help="Full ones.")
@click.option("--older-than", type=SPAN, help="Only what ended so long ago, such as 30d.")
@click.option("--dry-run", is_flag=True, help="Tell what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def prune(
    target: Target, folder: Path, keep: int, older_than: float | None, dry_run: bool, yes: bool
) -> None:
    """Remove old backups from FOLDER: full ones with all that follow them, the oldest first.

    The last --keep full ones stay, with what follows them.
    """
    from hms.history.backups.shipping import prunable  # noqa: PLC0415 - not for --help

    before_ms = int((time.time() - older_than) * 1000) if older_than else 0
    going = [
        path.name for chain in prunable(folder, keep=keep, before_ms=before_ms) for path in chain
    ]
    if dry_run or not going:
        text = (
            f"{counted(len(going), 'backup')} would go: {' '.join(going)}"
            if going
            else "nothing would go"
        )
        target.say(text, {"removed": [], "would_remove": going})
        return
    if not (yes or target.is_json):
        click.confirm(f"Remove {counted(len(going), 'backup')}, up to {going[-1]}?", abort=True)
    _prune(target, folder, keep, before_ms)


def _prune(target: Target, folder: Path, keep: int, before_ms: int) -> None:
    from hms.history.backups.shipping import prunable, remove  # noqa: PLC0415 - not for --help

    chains = prunable(folder, keep=keep, before_ms=before_ms)
    names = [path.name for chain in chains for path in chain]
    size = remove(chains)
    if names:
        target.say(
            f"removed {counted(len(names), 'backup')}, {counted(size, 'byte')}",
            {"removed": names, "bytes": size},
        )


@backup.command("list")
@target_options
@click.argument("folder", type=_FOLDER, required=False)
def list_(target: Target, folder: Path | None) -> None:
    """The backups in FOLDER, or in backups of the node, oldest first."""
    from hms.history.backups.backup_chain import backups_in  # noqa: PLC0415 - not for --help
    from hms.history.backups.backup_manifest import read_manifest  # noqa: PLC0415 - the same
    from hms.history.backups.shipped_mark import read_mark  # noqa: PLC0415 - the same

    folder = _place(target, folder)
    rows = []
    for path in backups_in(folder):
        one = read_manifest(path)
        rows.append(
            {
                "name": path.name,
                "node": one.node,
                "at": one.created_ms,
                "lsn": one.until_lsn - 1,
                "bytes": sum(file.bytes for file in one.files),
                "waiting": sum(one.counts.values()),
                "base": one.base,
                "verified": not one.is_shipped,
            }
        )
    show_table(target, rows, empty=f"there is no backup in {folder}", times=("at",))
    if not target.is_json and rows and (mark := read_mark(folder)) is not None:
        click.echo(f"shipped up to {written_time(mark.at_ms)}: all of it is in {mark.backup}")


@backup.command()
@target_options
@click.argument("path", type=_FOLDER)
@click.option("--deep", is_flag=True, help="Also read the body of each message in the log.")
def verify(target: Target, path: Path, deep: bool) -> None:
    """Check every file of the backup PATH, or the last in it, and of those it follows."""
    from hms.boot.calendar import CronCalendar  # noqa: PLC0415 - not for --help
    from hms.history.backups.backup_chain import verify as check  # noqa: PLC0415 - the same

    path = _chosen(path)
    manifest, counts = check(path, CronCalendar(), is_deep=deep)
    waiting = sum(counts.values())
    text = f"{path}: good, up to {manifest.until_lsn - 1}, {waiting} messages wait"
    target.say(text, {"backup": str(path), "lsn": manifest.until_lsn - 1, "waiting": waiting})


@backup.command()
@target_options
@click.argument("path", type=_FOLDER)
@click.option("--to", type=_FOLDER, help="The new store; not there, or empty.")
@click.option("--until", help="The last moment: a time such as 2026-05-01T08:00, or a number.")
@click.option("--check", "is_trial", is_flag=True, help="Boot the new store, then remove it.")
@click.option(
    "--domain", default="", help="With --check: that of a backup that does not say it; old ones."
)
def restore(
    target: Target, path: Path, to: Path | None, until: str | None, is_trial: bool, domain: str
) -> None:
    """Make a new store of the backup PATH, or the last in it, up to a moment; with --until of the
    last in it that has that moment.

    What was acknowledged after that moment comes again, flagged as redelivered; what was sent after
    it is gone. Both are told as far as the backup knows. No message id is given twice. Of the last
    backup that was shipped it says up to when nothing is missing.

    With --check a node boots the new store, alone and reached by nobody, and what waits at each
    place is compared; then the store is removed. It is made beside the backup, or in the folder
    --to. Exit code 3 when a place has another number, as when messages expired meanwhile.
    """
    from hms.history.backups.shipped_mark import read_mark  # noqa: PLC0415 - not for --help

    path = _chosen(path, until)
    if is_trial:
        _trial(target, path, to or path.parent, until, domain)
        return
    if to is None:
        raise click.UsageError("say with --to where the new store is to be")
    done = _restored(path, to, until)
    said = done._asdict() | {"at": written_time(done.at_ms)}
    mark = read_mark(path.parent)
    if mark is not None and mark.backup == path.name and until is None:
        said["complete_until"] = written_time(mark.at_ms)
    if target.is_json:
        target.say("", said)
        return
    shown = {key: value for key, value in said.items() if key != "at_ms"}
    shown["first_id"] = f"{done.first_id:012x}"
    show_values(target, shown)
    click.echo(f'To go on: set store = "{to}" for the node in hms.conf, then hms boot --warm.')


def _restored(path: Path, to: Path, until: str | None) -> "Restored":
    from hms.boot.calendar import CronCalendar  # noqa: PLC0415 - not for --help
    from hms.boot.security_file import own_name  # noqa: PLC0415 - the same
    from hms.history.backups.backup_restoration import restore as make  # noqa: PLC0415 - the same

    lsn, until_ms = _limits(until)
    by = f"os:{own_name()}"
    return make(path, to, CronCalendar(), until_lsn=lsn, until_ms=until_ms, by=by)


def _limits(until: str | None) -> tuple[int, int]:
    """The sequence number or the time that --until says; 0 for none."""
    lsn = int(until) if until and until.isdigit() else 0
    return lsn, _moment(until) if until and not lsn else 0


def _trial(target: Target, path: Path, beside: Path, until: str | None, domain: str) -> None:
    """Restore into a folder that is removed, and boot the store there."""
    from hms.boot.restored_boot import boot_restored, domain_of  # noqa: PLC0415 - not for --help
    from hms.history.backups.backup_manifest import read_manifest  # noqa: PLC0415 - the same

    manifest = read_manifest(path)
    domain = domain_of(manifest, domain, _domains(target))
    try:
        # a node that does not end, as its disk does not answer, is told and not what it leaves
        made = TemporaryDirectory(prefix=".restore-check-", dir=beside, ignore_cleanup_errors=True)
    except OSError as fault:
        detail = f"no folder can be made there: {fault.strerror}; --to names another place"
        raise BackupRefused(what=str(beside), detail=detail) from fault
    with made as folder:
        store = Path(folder) / "store"
        done = _restored(path, store, until)
        booted = boot_restored(store, manifest, domain, done.counts)
    said = {"backup": str(path), "lsn": done.lsn, **booted._asdict()}
    text = f"{path}: restored up to {done.lsn} and booted in {booted.seconds:.1f} s"
    text = f"{text}, {counted(booted.waiting, 'message waits', 'messages wait')}"
    for place, (restored, found) in booted.differs.items():
        text = f"{text}\n{place}: {restored} restored, {found} after the boot"
    target.say(text, said)
    if booted.differs:
        click.get_current_context().exit(DIFFERS)


def _domains(target: Target) -> list[str]:
    """Of which one a backup may be that does not say it."""
    from hms.errors.tree import HmsError  # noqa: PLC0415 - not for --help

    try:
        return [target.config().domain.name, USUAL_DOMAIN]
    except HmsError:
        return [USUAL_DOMAIN]  # a backup is tried where there is no hms.conf, too


def _place(target: Target, given: Path | None) -> Path:
    """The folder that was given, or that hms.conf names."""
    if given is not None:
        return given
    node = target.config().node(target.node_name)
    if node.backups is None:
        raise click.UsageError(f"say which folder, or set backups in [node.{node.name}]")
    return node.backups


def _chosen(path: Path, until: str | None = None) -> Path:
    """A backup, or the last one in a folder of them; until: the last that has this moment."""
    from hms.history.backups.backup_chain import backups_in, holding  # noqa: PLC0415 - as above

    known = backups_in(path)
    if not known:
        return path
    lsn, until_ms = _limits(until)
    found = holding(known[-1], lsn=lsn, at_ms=until_ms) if lsn or until_ms else None
    return found or known[-1]


def _moment(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as fault:
        raise click.UsageError(f"--until: {text!r} is neither a time nor a number") from fault
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
