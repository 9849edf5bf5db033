"""A group of commands that imports each one only when it is used, and reports errors one way.

Help is written from the table alone, so that `hms --help` loads nothing. An HmsError ends the
command with its text on standard error and exit code 1; click ends a wrong command line with 2. A
command whose reader has gone, such as head, ends as SIGPIPE ends others, without a word: it may
have been given more to do or to tell, so that 0 would say too much. A full disk, or a
file that cannot be had, is told in a line.
"""

import errno
import importlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

__all__ = ["LazyGroup"]

_FULL = (errno.ENOSPC, errno.EDQUOT)
UNREAD = 128 + signal.SIGPIPE
"""Exit code of a command whose output nobody reads any more."""


class LazyGroup(click.Group):
    """entries: by command name, where the command is ("module:attribute") and its one-line help."""

    def __init__(self, *, entries: Mapping[str, tuple[str, str]], **settings: Any) -> None:
        super().__init__(**settings)
        self._entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The commands, in the order of the table."""
        return list(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command, imported now."""
        if cmd_name not in self._entries:
            return None
        module, _, attribute = self._entries[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuses bytes that are no UTF-8, of which Python makes characters that nothing takes."""
        for argument in args:
            if not argument.isascii() and any("\ud800" <= c <= "\udfff" for c in argument):
                from hms.errors.catalogue import InvalidArgument  # noqa: PLC0415 - only for this

                detail = f"{os.fsencode(argument)[:80]!r} is no UTF-8"
                ctx.fail(str(InvalidArgument(what="command line", detail=detail)))
        with _ending_unwritten(ctx):  # --help and --version print here
            return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Names the nearest command when there is none of that name."""
        if args and args[0] not in self._entries and not args[0].startswith("-"):
            from hms.boot.kinds import did_you_mean  # noqa: PLC0415 - only for this

            hint = did_you_mean(args[0], tuple(self._entries))
            ctx.fail(f"there is no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of commands in the help."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, said) for name, (_, said) in self._entries.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what HMS refuses ends with exit code 1."""
        from hms.errors.tree import HmsError  # noqa: PLC0415 - not for --help

        with _ending_unwritten(ctx):
            try:
                return super().invoke(ctx)
            except HmsError as error:
                click.echo(error.describe(is_shell=True), err=True)
                ctx.exit(1)


@contextmanager
def _ending_unwritten(ctx: click.Context) -> Iterator[None]:
    """Ends the command quietly when the reader of its output has gone, and with a line when a file
    of it cannot be had, or the disk is full to which its output goes."""
    try:
        yield
    except BrokenPipeError:
        _put_away()
        ctx.exit(UNREAD)
    except OSError as fault:
        if fault.filename is None and fault.errno not in _FULL:
            raise
        what = fault.filename or "the output cannot be written"
        click.echo(f"Error: {what}: {fault.strerror}", err=True)
        if fault.filename is None:
            _put_away()
        ctx.exit(1)


def _put_away() -> None:
    """Standard output takes nothing any more, and closing it says nothing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
