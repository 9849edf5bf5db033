"""hms store: verify and salvage for the one who stands before a store that does not boot, upgrade
and finalize for the one who installs another version.

verify ends with 0 when the store is good, 3 when only a write at its end was cut short, 4 when it
is damaged. 1 and 2 mean what they mean everywhere: refused, and not understood.
"""

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hms.boot.cli.store_words import (
    damage_lines,
    dropped_line,
    examination_line,
    finalize_line,
    next_steps,
    upgrade_line,
)
from hms.boot.cli.target import Target, show_values, target_options

if TYPE_CHECKING:
    from hms.store.journal.salvage import Salvaged
    from hms.store.journal.store_examination import Examination

__all__ = ["store"]

EXIT_CODES = {"good": 0, "torn": 3, "damaged": 4}


@click.group()
def store() -> None:
    """Check a store, or save what is left of a damaged one."""


@store.command()
@target_options
@click.argument("path", required=False, type=click.Path(path_type=Path))
def verify(target: Target, path: Path | None) -> None:
    """Read the whole store at PATH, else that of the node, and say whether it is good.

    Changes nothing. Exit code 0: good; 3: a write at its end was cut short, nothing confirmed is
    lost; 4: damaged.
    """
    from hms.store.journal.store_examination import examine  # noqa: PLC0415 - not for --help

    found = examine(_path(target, path))
    if target.is_json:
        target.say("", _as_data(found))
    else:
        click.echo(examination_line(found))
        for line in damage_lines(found):
            click.echo(line)
    click.get_current_context().exit(EXIT_CODES[found.verdict])


@store.command()
@target_options
@click.argument("path", required=False, type=click.Path(path_type=Path))
def version(target: Target, path: Path | None) -> None:
    """The format of the store at PATH, else that of the node, and what this version reads."""
    from hms.store.journal.format_versions import READ, WRITTEN, versions_in  # noqa: PLC0415 - same

    place = _path(target, path)
    found = versions_in(place)
    words = ", ".join(f"{count} segments of version {one}" for one, count in found.items())
    readable = " and ".join(map(str, READ))
    text = f"{place}: {words or 'no segments'}. This version reads {readable}, and writes {WRITTEN}"
    said = {"path": str(place), "segments": found, "reads": list(READ), "writes": WRITTEN}
    target.say(text, said)
    if any(one not in READ for one in found):
        click.get_current_context().exit(1)


@store.command()
@target_options
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Look at the headers only, not at every record.")
def upgrade(target: Target, path: Path | None, check: bool) -> None:
    """Whether this version can take over the store at PATH, else that of the node, and what
    `hms store finalize` would change. Changes nothing; exit code 1 when something is in the way.
    """
    from hms.store.journal.format_versions import READ, WRITTEN, versions_in  # noqa: PLC0415 - same
    from hms.store.journal.store_examination import examine  # noqa: PLC0415 - same

    place = _path(target, path)
    found = versions_in(place)
    faults = [f"{n} segments have format {one}" for one, n in found.items() if one not in READ]
    if not faults and not check:
        examined = examine(place)
        faults = list(damage_lines(examined))
    now = max(found, default=WRITTEN)
    lines = faults or [upgrade_line(now, WRITTEN)]
    said = {
        "path": str(place),
        "format": now,
        "newest_format": WRITTEN,
        "segments": found,
        "faults": faults,
    }
    target.say("\n".join(f"{place}: {line}" for line in lines), said)
    if faults:
        click.get_current_context().exit(1)


@store.command()
@target_options
@click.option("--yes", is_flag=True, help="Do not ask.")
def finalize(target: Target, yes: bool) -> None:
    """Have the running node write the newest format from now on: the release before cannot boot
    the store any more, other than from a backup.
    """
    from hms.history.seals import begin_segment  # noqa: PLC0415 - not for --help

    with target.connection() as connection:
        status = connection.administer("status", {})
        # a release before this command says neither, and refuses it
        now, newest = status.get("store_format", 0), status.get("newest_store_format", 0)
        if now < newest and not yes:
            click.echo(finalize_line(now, newest), err=True)
            click.confirm("Raise it?", abort=True, err=True)
        done = begin_segment(connection, "store.finalize")
    before, after = done["format_before"], done["format"]
    is_raised = f"the store's format was raised from {before} to {after}"
    target.say(is_raised if before < after else f"the store has format {after} already", done)


@store.command()
@target_options
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option(
    "--to",
    "new",
    required=True,
    type=click.Path(path_type=Path),
    help="The directory to make; it must not exist.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def salvage(target: Target, path: Path | None, new: Path, yes: bool) -> None:
    """Copy what is sound of the store at PATH, else that of the node, into a new store.

    The damaged store is not changed. What is dropped is printed, and asked for, before anything is
    written.
    """
    from hms.store.journal import salvage as salvaging  # noqa: PLC0415 - not for --help

    source = _path(target, path)
    told = salvaging.salvage(source, None)
    if not yes:
        _tell(target, told)
        click.confirm(f"Write all else to {new}?", abort=True, err=True)
    done = salvaging.salvage(source, new)
    if yes:
        _tell(target, done)
    said = (
        f"{new} holds {done.records:,} records in {done.segments:,} segments. {source} is as it "
        f'was.\nTo go on: set store = "{new}" for the node in hms.conf, then hms boot --warm.'
    )
    target.say(said, _salvaged_data(done))


@store.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument(
    "mode",
    type=click.Choice(("latency", "locks", "honesty", "witness", "check", "kill", "damage")),
    required=False,
)
@click.option("--peer", "is_peer", is_flag=True, help="Try it from two machines that share PATH.")
@click.option(
    "--wait-s",
    type=click.FloatRange(1, 86_400),
    default=120.0,
    show_default=True,
    help="--peer: how long the other machine is waited for.",
)
@click.option("--count", type=click.IntRange(10, 10_000_000), default=200, show_default=True)
@click.option("--witness", help="honesty, check: HOST:PORT of `hms store probe DIR witness`.")
@click.option("--listen", default="127.0.0.1:7790", show_default=True, help="Of the witness.")
@click.option("--runs", type=click.IntRange(1, 10_000), default=5, show_default=True)
@click.option("--json", "is_json", is_flag=True, help="Answer in JSON.")
def probe(
    path: Path,
    mode: str | None,
    is_peer: bool,
    wait_s: float,
    count: int,
    witness: str | None,
    listen: str,
    runs: int,
    is_json: bool,
) -> None:
    """What the disk below PATH does, in a folder of its own there, which is removed.

    latency: appends, overwrites and renames with their syncs, and a curve of batches. locks: one
    holds it, another is refused and gets it after that, also after a kill. honesty: whether the
    device's own counters show what was synced; exit code 4 when they do not, 3 when there are none.
    kill: a node of its own there is killed, --runs times, and its books are balanced. damage: PATH
    is a store that no node has; bits of a copy are flipped, and each must be detected.

    honesty --witness: numbered records are written, synced, and told to a witness at another
    machine (PATH there is where it keeps the numbers), until somebody cuts the power of this one.
    check --witness tells afterwards which confirmed records are lost; exit code 4 when some are.

    --peer: run it on two machines that mount PATH. Whether one rename wins and is seen at once,
    locks hold and end with their holder, synced bytes are read by the other one, and a log that is
    taken over while it is written loses nothing; exit code 4 when a shared store is not safe there,
    3 when both ran on one machine.
    """
    from hms.boot.doctor import probing  # noqa: PLC0415 - not for --help

    target = Target(Path(), None, None, is_json)
    if is_peer and mode is not None:
        raise click.UsageError(f"--peer is a test of its own, without {mode}")
    mode = mode or "latency"
    try:
        if is_peer:
            said, code = probing.peer(path, count, wait_s)
            show_values(target, said)
            click.get_current_context().exit(code)
        if mode == "witness":
            _serve_witness(target, path, _place(listen))
            return
        if mode == "check" and witness is None:
            raise click.UsageError("check needs --witness HOST:PORT")
        if witness is not None and mode in ("honesty", "check"):
            said, code = probing.witnessed(path, mode, count, _place(witness))
        else:
            size = runs if mode == "kill" else count
            said, code = probing.MODES[mode](path, size)
    except OSError as fault:
        where = fault.filename or path
        raise click.ClickException(f"{where}: {fault.strerror or fault}") from fault
    show_values(target, said)
    if code:
        click.get_current_context().exit(code)


def _place(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise click.UsageError(f"{text!r} is no HOST:PORT")
    return host.strip("[]"), int(port)


def _serve_witness(target: Target, path: Path, place: tuple[str, int]) -> None:
    from hms.boot.doctor.witness import Witness  # noqa: PLC0415 - not for --help

    with Witness(*place, path / "witness.txt") as server:
        said = {"listens": f"{place[0]}:{server.port}", "file": str(path / "witness.txt")}
        target.say(f"witness at {said['listens']}; Ctrl-C ends it", said)
        sys.stdout.flush()
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def _path(target: Target, path: Path | None) -> Path:
    if target.address:
        raise click.UsageError("a store is read from its directory, not by --connect")
    if path is not None:
        return path
    node = target.config().node(target.node_name)
    if node.database is not None:
        from hms.errors.catalogue import NotSupported  # noqa: PLC0415 - not for --help

        raise NotSupported(
            feature=f"hms store on {node.name}, which keeps its messages in a database,",
            instead="Check and back up that database with its own tools; a boot reads it whole.",
        )
    from hms.boot.log_folder import log_folder  # noqa: PLC0415 - not for --help

    return log_folder(node)


def _tell(target: Target, done: "Salvaged") -> None:
    if target.is_json:
        return
    if not done.dropped:
        click.echo("Every record in it is sound: nothing is dropped.")
        return
    click.echo("These are dropped:")
    for gap in done.dropped:
        click.echo(f"  {dropped_line(gap)}")
    for line in next_steps(done.dropped):
        click.echo(line)


def _as_data(found: "Examination") -> dict[str, Any]:
    torn = found.torn
    return {
        "path": found.path,
        "verdict": found.verdict,
        "in_use_by": found.in_use_by,
        "segments": found.segments,
        "pinned_segments": found.pinned_segments,
        "history_segments": found.history_segments,
        "records": found.records,
        "first_lsn": found.first_lsn,
        "last_lsn": found.last_lsn,
        "torn": torn and {"file": torn.file, "offset": torn.offset, "bytes": torn.size},
        "damages": [
            {
                "file": damage.file,
                "offset": damage.offset,
                "lsn": damage.lsn,
                "detail": damage.detail,
                "keeps_from_booting": damage.is_needed,
            }
            for damage in found.damages
        ],
    }


def _salvaged_data(done: "Salvaged") -> dict[str, Any]:
    return {
        "path": done.source,
        "to": done.target,
        "segments": done.segments,
        "records": done.records,
        "bytes": done.bytes,
        "dropped": [
            {
                "file": gap.file,
                "offset": gap.offset,
                "first_lsn": gap.first_lsn,
                "last_lsn": gap.last_lsn,
                "records": gap.records,
                "after_message_id": _id(gap.id_before),
                "before_message_id": _id(gap.id_behind),
            }
            for gap in done.dropped
        ],
    }


def _id(number: int | None) -> str | None:
    return None if number is None else f"{number:012x}"
