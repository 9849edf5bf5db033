"""hms health, hms metrics and hms web."""

import contextlib
import json
import signal
import time
from typing import TYPE_CHECKING, Any

import click

from hms.boot.cli.target import Target, target_options
from hms.boot.monitoring.families import exposition, standby_text
from hms.boot.monitoring.health import Health, health_of
from hms.wire.operations import ROWS_MAX

if TYPE_CHECKING:
    from hms.boot.entries import Config, Node
    from hms.boot.web.console_history import HistoryPlace

__all__ = ["health", "metrics", "web"]

NAGIOS_OK, NAGIOS_WARNING, NAGIOS_CRITICAL = 0, 1, 2
QUESTIONS = ("live", "ready", "details")


@click.command()
@target_options
@click.argument("question", type=click.Choice(QUESTIONS), default="details")
@click.option(
    "--for", "who", type=click.Choice(("producers",)), help="Ready for what they send, too."
)
@click.option("--nagios", is_flag=True, help="Text and exit codes as Nagios expects them.")
def health(target: Target, question: str, who: str | None, nagios: bool) -> None:
    """Whether the node is live, or ready, seen from outside: exit code 0, or 1 when not.

    It reads what the node says of itself on this machine and asks nobody, so it answers while the
    node boots, is full or hangs. Live: it need not be restarted. Ready: work may be sent to it.
    """
    if target.address:
        raise click.UsageError("health is read on the node's machine, by --config")
    config = target.config()
    every = [health_of(node) for node in target.nodes(config)]
    if nagios:
        _say_nagios(every)
        return
    for one in every:
        is_good, text = _judge(one, question, who)
        shown: dict[str, Any] = (
            one.details() if question == "details" else {"node": one.node, "text": text}
        )
        shown["ok"] = is_good
        target.say(f"{one.node}: {text}", shown)
        if question == "details" and not target.is_json:
            for name, age_s in one.checks.items():
                click.echo(f"  {name}: last progress {age_s:g} s ago")
            for alert in one.alerts:
                where = f" {alert['destination']}" if alert["destination"] else ""
                click.echo(f"  alert {alert['alert']}{where}: {alert['text']}")
    if not all(_judge(one, question, who)[0] for one in every):
        click.get_current_context().exit(1)


def _judge(one: Health, question: str, who: str | None) -> tuple[bool, str]:
    if question == "live":
        return one.is_live, one.text
    if who == "producers":
        return one.is_ready_for_producers, one.text_for_producers
    return one.is_ready, one.text


def _say_nagios(every: list[Health]) -> None:
    """One line; a node in alarm is a warning."""
    code = NAGIOS_OK
    for one in every:
        if not one.is_ready:
            code = NAGIOS_CRITICAL
        elif one.alerts:
            code = max(code, NAGIOS_WARNING)
    word = ("OK", "WARNING", "CRITICAL")[code]
    alerts = sum(len(one.alerts) for one in every)
    texts = "; ".join(f"{one.node} {one.text}" for one in every)
    click.echo(f"HMS {word} - {texts} | alerts={alerts}")
    click.get_current_context().exit(code)


@click.command()
@target_options
@click.option("--name", "names", multiple=True, help="Destinations that get series of their own.")
@click.option("--openmetrics", is_flag=True, help="As OpenMetrics.")
@click.option(
    "--series-max", type=click.IntRange(100), default=20_000, show_default=True, help="At most."
)
def metrics(target: Target, names: tuple[str, ...], openmetrics: bool, series_max: int) -> None:
    """The node's metrics as text for Prometheus, without HTTP.

    Where this machine's process stands by: what is known here of it, its disk and its copy.
    """
    if not target.address and (node := _standing_by(target)) is not None:
        from hms.boot.monitoring.standby_figures import figures_of  # noqa: PLC0415 - not for --help

        figures = figures_of(node)
        text = standby_text(figures, is_open=openmetrics)
        click.echo(json.dumps(figures) if target.is_json else text, nl=target.is_json)
        return
    said: dict[str, Any] = target.administer(
        "metrics.show", names=" ".join(names), limit=min(series_max, ROWS_MAX)
    )
    if target.is_json:
        click.echo(json.dumps(said))
        return
    click.echo(exposition(said, series_max=series_max, is_open=openmetrics), nl=False)


def _standing_by(target: Target) -> "Node | None":
    """The node, where this machine's process waits for another one that leads."""
    node = target.config().node(target.node_name)
    return node if health_of(node).state == "standby" else None


@click.command()
@target_options
@click.option("--listen", default="127.0.0.1:7780", show_default=True, help="HOST:PORT; 0 any.")
@click.option("--host", "hosts", multiple=True, help="Another name by which it may be asked.")
@click.option("--name", "names", multiple=True, help="Destinations that /metrics shows, too.")
@click.option(
    "--series-max", type=click.IntRange(100), default=20_000, show_default=True, help="At most."
)
def web(
    target: Target, listen: str, hosts: tuple[str, ...], names: tuple[str, ...], series_max: int
) -> None:
    """Serve health, metrics and a console over HTTP, in a process of its own, until interrupted.

    /livez, /readyz, /healthz, /metrics, /metrics/destinations?name=PATTERN, and the console at /.
    What metrics show is what its login may see; of the console, what the login of its user may.
    """
    if target.address:
        raise click.UsageError("hms web reads the node's health on its machine, by --config")
    from hms.boot.monitoring.standby_figures import SharedFigures  # noqa: PLC0415 - the same
    from hms.boot.web.console import Console  # noqa: PLC0415 - the help loads no messaging
    from hms.boot.web.console_files import Files  # noqa: PLC0415
    from hms.boot.web.console_history import History  # noqa: PLC0415
    from hms.boot.web.console_node import NodePages  # noqa: PLC0415
    from hms.boot.web.console_rules import Rules  # noqa: PLC0415
    from hms.boot.web.console_sessions import Sessions  # noqa: PLC0415
    from hms.boot.web.http_server import WebServer  # noqa: PLC0415
    from hms.boot.web.node_link import NodeLink  # noqa: PLC0415
    from hms.boot.web.node_place import NodePlace  # noqa: PLC0415
    from hms.boot.web.site import Site  # noqa: PLC0415
    from hms.client.connection import Connection  # noqa: PLC0415

    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit():
        raise click.UsageError("--listen is HOST:PORT, such as 127.0.0.1:7780")
    if host not in ("127.0.0.1", "::1", "localhost"):
        raise click.UsageError("--listen is on this machine; a proxy with TLS may stand before it")
    config = target.config()
    node = config.node(target.node_name)

    def connect(user: str = "", password: str = "", **options: Any) -> Connection:
        own: dict[str, Any] = {
            "client_name": "hms web",
            "reconnect": False,
            "request_timeout_s": 4,
            "connect_timeout_s": 4,
        }
        given = {"user": user, "password": password, **own, **options}
        return Connection(node.listen[0], **given).open()

    link = NodeLink(connect)
    sessions = Sessions(connect, is_secured=node.security is not None)
    about_node = NodePages(NodePlace(config.path, node.name))
    files = Files()
    groups = (
        files.group,
        History(_history_of(target, config, node)).group,
        Rules(config.letter_handlers_of(node), lambda: int(time.time() * 1000)).group,
        *about_node.groups,
    )
    console = Console(
        node.name, lambda: health_of(node), sessions, groups, about_node.pages, about_node.orders
    )
    site = Site(
        node.name,
        lambda: health_of(node),
        link,
        " ".join(names),
        series_max,
        console.handle,
        SharedFigures(node),
    )
    try:
        server = WebServer(host, int(port), site.handle, frozenset(hosts), uploads=console.uploads)
    except OSError as fault:
        raise click.ClickException(f"cannot listen at {listen}: {fault.strerror}") from fault
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{server.port}"
    target.say(f"{node.name}: {address}", {"node": node.name, "address": address})
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), server:
        server.serve_forever(poll_interval=0.5)
    about_node.close()
    files.close()
    sessions.close()
    link.close()


def _history_of(target: Target, config: "Config", node: "Node") -> "HistoryPlace":
    """Where the history of a node is."""
    from hms.boot.cli.target import store_of  # noqa: PLC0415 - the help loads no store
    from hms.boot.web.console_history import HistoryPlace  # noqa: PLC0415 - the same

    is_first = config.node().name == node.name
    return HistoryPlace(lambda: store_of(node), node.listen[0], target.path if is_first else None)
