"""What every command takes: which node to speak to, and whether to answer in JSON."""

import json
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hms.boot.cli.cells import written_times
from hms.boot.cli.tables import print_table
from hms.boot.cli.values import print_values

if TYPE_CHECKING:
    from hms.boot.entries import Config, Node

__all__ = [
    "Target",
    "address_and_store",
    "interruptible",
    "show_table",
    "show_values",
    "store_of",
    "target_options",
]


BY_PROFILE = "profile:"
"""As hms.client.profiles.profiled has it, which --help does not load."""
HEALTH_TELLS = "hms health tells how it is"
ANSWER_S = 30.0
"""How long a command waits for the node's answer, where nothing else was said."""


@dataclass(frozen=True, slots=True)
class Target:
    """The node that a command is for: by address, by "profile:NAME" in its place, or by the
    configuration."""

    path: Path
    address: str | None
    node_name: str | None
    is_json: bool
    timeout_s: float = ANSWER_S
    is_one_of_many: bool = False
    """The command is given to several nodes, and each answer names its own."""
    until: float = math.inf
    """When the time is over that a command has for all of its work, by the monotonic clock."""
    work_s: float | None = None
    """How long the node may work at an answer once it is reached, where that is told apart."""

    @property
    def left_s(self) -> float:
        """How much of that time is left, in tenths, as it is told."""
        left_s = max(0.0, self.until - time.monotonic())
        return left_s if left_s == math.inf else math.ceil(left_s * 10) / 10

    def config(self) -> "Config":
        """The configuration, checked."""
        from hms.boot.config import load  # noqa: PLC0415 - not with --connect

        return load(self.path)

    def nodes(self, config: "Config") -> "list[Node]":
        """The node that was named, or all of the file."""
        return [config.node(self.node_name)] if self.node_name else list(config.nodes.values())

    def resolve(self) -> str:
        """The address to connect to, or the profile; without --connect and --profile the node's
        first in the configuration."""
        return self.address or self.config().node(self.node_name).listen[0]

    @contextmanager
    def connection(self, **settings: Any) -> Iterator[Any]:
        """A connection to the node, closed at the end; a lost one fails the command at once."""
        from hms.client.connection import Connection  # noqa: PLC0415 - only who connects
        from hms.client.profiles.profiled import tool_connection  # noqa: PLC0415 - the same
        from hms.errors.catalogue import ConnectionRefused  # noqa: PLC0415 - the same

        given = {
            "client_name": "hms",
            "reconnect": False,
            "request_timeout_s": self.timeout_s if self.work_s is None else self.work_s,
            **settings,
        }
        with ExitStack() as opened:
            try:
                made = tool_connection(Connection, self.resolve(), **given)
                made.requests.begin_within(min(self.timeout_s, self.left_s))
                connection = opened.enter_context(made.open())
            except ConnectionRefused as fault:
                if not (pid := self._pid()):
                    raise
                reason = self._waits_for(pid)
                reason = reason or f"{fault.reason}, though its process {pid} runs; {HEALTH_TELLS}"
                raise ConnectionRefused(address=fault.address, reason=reason) from fault
            if self.work_s is not None:
                connection.requests.begin_within(self.work_s)
            yield connection

    def _pid(self) -> int:
        """Of the node on this machine, 0 when it does not run here or nobody knows."""
        if self.address:
            return 0
        from hms.boot.supervise import find  # noqa: PLC0415 - when something is wrong only

        process = find(self.config().node(self.node_name))
        return 0 if process is None else process.pid

    def _waits_for(self, pid: int) -> str:
        """Why a process of this machine does not answer that stands by, and nobody leads; "" where
        it does not stand by."""
        from hms.boot.roles import role_of  # noqa: PLC0415 - when something is wrong only

        node = self.config().node(self.node_name)
        if (role := role_of(node, pid)) is None:
            return ""
        who, tells = f"nobody leads {node.name}", "hms replica status"
        if node.replica is None:
            who, tells = f"another machine has the store of {node.name}", "hms standby list"
        here = f"its process {pid} stands by here, and waits for {role['waits_for']}"
        return f"{who}; {here}; {tells} tells more"

    def administer(self, verb: str, **arguments: Any) -> Any:
        """The node's answer to an operator's command, as plain data."""
        with self.connection() as connection:
            return connection.administer(verb, arguments)

    def say(self, text: str, data: Any) -> None:
        """The text, or with --json the data."""
        if self.is_one_of_many:
            text, data = f"{self.node_name}: {text}", {"node": self.node_name, **data}
        click.echo(json.dumps(data, default=str) if self.is_json else text)

    def each(self) -> "list[Target]":
        """One for each node of the configuration."""
        if self.address or self.node_name:
            raise click.UsageError("--all-nodes is each node of hms.conf: name none")
        config = self.config()
        return [replace(self, node_name=n, is_one_of_many=True) for n in config.nodes]


@contextmanager
def interruptible(goes_on: str) -> Iterator[None]:
    """What Ctrl-C does not end: it was ordered, and the node does it."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"interrupted: {goes_on}", err=True)
        click.get_current_context().exit(1)


def address_and_store(path: Path) -> tuple[str, Path]:
    """Of the first node of a configuration: what commands over the history are given."""
    from hms.boot.config import load  # noqa: PLC0415 - only for these

    node = load(path).node()
    return node.listen[0], store_of(node)


def store_of(node: "Node") -> Path:
    """Where the history of a node is; NotSupported where it is in a database."""
    from hms.boot.log_folder import log_folder  # noqa: PLC0415 - the help loads no store
    from hms.errors.catalogue import NotSupported  # noqa: PLC0415 - nor messaging

    if node.database is not None:
        raise NotSupported(
            feature="hms history on a database store",
            instead="Its records stand in the table that ends in log; read them with SQL.",
        )
    return log_folder(node)


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a Target and pass it as `target`. --timeout bounds connecting
    and the node's answers. A command that has one of its own spends it on connecting, too; of 0,
    which is to wait for nothing, connecting takes what it needs."""
    own = list(getattr(command, "__click_params__", []))
    has_timeout = any("--timeout" in one.opts for one in own)

    def run(
        config_file: Path,
        address: str | None,
        profile: str | None,
        node_name: str | None,
        is_json: bool,
        answer_s: float = ANSWER_S,
        **rest: Any,
    ) -> Any:
        if address and profile:
            raise click.UsageError("--connect and --profile both say which node: give one of them")
        place = f"{BY_PROFILE}{profile}" if profile else address
        own_s = rest.get("timeout_s") if has_timeout else None
        until = time.monotonic() + own_s if own_s else math.inf
        target = Target(config_file, place, node_name, is_json, answer_s, until=until)
        return command(target=target, **rest)

    run.__doc__, run.__name__ = command.__doc__, command.__name__
    run.__click_params__ = own  # type: ignore[attr-defined]
    for one in own:
        if isinstance(one, click.Argument) and one.name in ("name", "destination", "topic"):
            one._custom_shell_complete = _names  # noqa: SLF001 - as click sets it itself
    for option in reversed(_OPTIONS if has_timeout else (*_OPTIONS, _TIMEOUT)):
        option(run)
    return run


def _names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from hms.boot.cli.completion import complete_names  # noqa: PLC0415 - at the tabulator only

    return complete_names(ctx, param, incomplete)


def _profiles(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from hms.boot.cli.completion import complete_profiles  # noqa: PLC0415 - as above

    return complete_profiles(incomplete)


_OPTIONS = (
    click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path),
        default="hms.conf",
        envvar="HMS_CONFIG",
        show_default=True,
        help="The configuration; HMS_CONFIG names another one too.",
    ),
    click.option("--node", "node_name", help="The node of the configuration; else the first."),
    click.option("--connect", "address", help="Speak to this address, without a configuration."),
    click.option(
        "--profile",
        metavar="NAME",
        shell_complete=_profiles,
        help="Speak to the node of this profile of hms-client.toml, by its login.",
    ),
    click.option("--json", "is_json", is_flag=True, help="Answer in JSON."),
)


_TIMEOUT = click.option(
    "--timeout",
    "answer_s",
    type=click.FloatRange(0),
    default=ANSWER_S,
    show_default=True,
    help="Seconds to connect and be answered; a command in parts has them for each.",
)


_MOMENTS = ("since_ms", "used_ms")


def show_table(
    target: Target,
    rows: Sequence[Mapping[str, Any]],
    *,
    empty: str,
    columns: Sequence[str] = (),
    times: Sequence[str] = (),
) -> None:
    """Rows of one kind, in columns, or with --json as a list. columns: those that are shown unless
    more are asked for (@table_options); times: those that hold ms since 1970."""
    print_table(rows, empty=empty, is_json=target.is_json, columns=columns, times=times)


def show_values(
    target: Target,
    values: Mapping[str, Any],
    *,
    usual: Sequence[Sequence[str]] = (),
    inner: Collection[str] = (),
    times: Collection[str] = (),
) -> None:
    """The values of one thing, one on a line, as print_values says, or with --json as an object."""
    if target.is_json:
        click.echo(json.dumps(written_times(values, times), default=str))
        return
    # a time in ms is for programs; who reads it here is told the time
    moments = {name: name.removesuffix("_ms") for name in values if name in _MOMENTS}
    said = {moments.get(name, name): value for name, value in values.items()}
    print_values(said, usual=usual, inner=inner, times=(*times, *moments.values()))
