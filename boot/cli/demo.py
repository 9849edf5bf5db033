"""hms demo: the whole story on real flights."""

import importlib

import click

__all__ = ["demo"]


@click.command()
@click.option("--nodes", type=int, default=1, show_default=True, help="So many act as one.")
def demo(nodes: int) -> None:
    """Boot a node, load real flights, use every part of it, and tell what happens. With several
    nodes: global queues, messages that move, and one node that is killed."""
    code = importlib.import_module("hms.boot.demo").run(nodes)
    click.get_current_context().exit(code or 0)
