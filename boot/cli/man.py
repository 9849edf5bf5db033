"""hms man: manual pages, made of the commands themselves."""

import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap

import click

__all__ = ["man", "pages"]

WIDTH = 76
MACRO_MAX = 3
"""So many letters at most has the name of a macro."""
_STATUS = (
    (0, "The command is done."),
    (1, "The node refused it, or did not answer; standard error says why and what to do."),
    (2, "The command line is wrong."),
    (141, "Nobody reads its output any more, as behind head(1)."),
)


@click.command()
@click.option(
    "--to",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="The folder, such as /usr/local/share/man/man1.",
)
def man(to: Path) -> None:
    """Write the manual pages: hms(1), and one for each command."""
    root = click.get_current_context().find_root().command
    assert isinstance(root, click.Group)
    written = 0
    try:
        to.mkdir(parents=True, exist_ok=True)
        for name, text in pages(root, time.strftime("%B %-d, %Y", time.gmtime())):
            (to / f"{name}.1").write_text(text, encoding="utf-8")
            written += 1
    except OSError as fault:
        raise click.ClickException(f"{to} cannot be written: {fault.strerror}") from fault
    click.echo(f"{to}: {written} pages")


def pages(root: click.Group, date: str) -> Iterator[tuple[str, str]]:
    """Name and text of each page. date: such as May 1, 2026."""
    context = click.Context(root, info_name="hms")
    names = root.list_commands(context)
    commands = {name: command for name in names if (command := root.get_command(context, name))}
    said = [(f"hms-{name}", _first(one)) for name, one in commands.items() if not one.hidden]
    yield "hms", _page("hms", root, context, date, said)
    for name, command in commands.items():
        if not command.hidden:
            inner = click.Context(command, info_name=name, parent=context)
            yield f"hms-{name}", _page(f"hms-{name}", command, inner, date, [])


def _page(
    name: str,
    command: click.Command,
    context: click.Context,
    date: str,
    others: list[tuple[str, str]],
) -> str:
    lines = [
        f".Dd {date}",
        f".Dt {name.upper()} 1",
        ".Os",
        ".Sh NAME",
        f".Nm {name}",
        f".Nd {_escaped(_first(command)).rstrip('.')}",
        ".Sh SYNOPSIS",
        f".Nm {' '.join(_words(context))}",
        *_usage(command, context),
        ".Sh DESCRIPTION",
        *_text(command),
    ]
    for title, parts in (("COMMANDS", others), ("OPTIONS", _options(command, context))):
        if parts:
            lines += [f".Sh {title}", ".Bl -tag -width Ds", *_items(parts), ".El"]
    if isinstance(command, click.Group) and not others:
        lines += [".Sh COMMANDS", *_inner(command, context)]
    lines += [
        ".Sh EXIT STATUS",
        ".Bl -tag -width Ds",
        *_items([(str(code), said) for code, said in _STATUS]),
        ".El",
        ".Sh SEE ALSO",
        f"\\&{'hms-boot(1), hms-config(1)' if name == 'hms' else 'hms(1)'}",
    ]
    return "\n".join(lines) + "\n"


def _inner(group: click.Group, context: click.Context) -> Iterator[str]:
    """The commands of a group, each with its options."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        inner = click.Context(command, info_name=name, parent=context)
        yield f".Ss {' '.join(_words(inner))}"
        pieces = " ".join(command.collect_usage_pieces(inner))
        yield f".Dl {' '.join(_words(inner))} {_escaped(pieces)}"
        yield ".Pp"
        yield from _text(command)
        parts = _options(command, inner)
        if parts:
            yield from (".Bl -tag -width Ds", *_items(parts), ".El")
        if isinstance(command, click.Group):
            yield from _inner(command, inner)


def _usage(command: click.Command, context: click.Context) -> list[str]:
    return [f".Ar {_escaped(piece)}" for piece in command.collect_usage_pieces(context)]


def _words(context: click.Context) -> list[str]:
    return context.command_path.split()


def _options(command: click.Command, context: click.Context) -> list[tuple[str, str]]:
    found = (one.get_help_record(context) for one in command.get_params(context))
    return [(names, said) for names, said in filter(None, found)]


def _items(parts: list[tuple[str, str]]) -> Iterator[str]:
    for tag, said in parts:
        yield f".It {_escaped(tag)}"
        yield from _lines(said)


def _text(command: click.Command) -> Iterator[str]:
    paragraphs = (command.help or _first(command)).replace("\b\n", "").split("\n\n")
    for number, paragraph in enumerate(paragraphs):
        if number:
            yield ".Pp"
        yield from _lines(" ".join(paragraph.split()))


def _lines(said: str) -> Iterator[str]:
    """A sentence begins a line, as the format wants, and none is long."""
    for sentence in said.replace(". ", ".\n").splitlines():
        text = _raw(sentence.strip() or "-")
        for line in wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False):
            yield _as_text(line)


def _first(command: click.Command) -> str:
    return command.get_short_help_str(200).rstrip(" …")


def _escaped(text: str) -> str:
    return _as_text(_raw(text))


def _raw(text: str) -> str:
    """Without escapes; what is no ASCII by its number."""
    found = text.replace("\\", "\\e").replace('"', "\\(dq").replace("-", "\\-")
    return "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in found)


def _as_text(line: str) -> str:
    """Nothing at its beginning is taken for a macro."""
    is_macro = line[:1] in (".", "'") or len(line.split(" ", 1)[0]) <= MACRO_MAX
    return f"\\&{line}" if is_macro else line
