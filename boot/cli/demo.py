"""hms demo: the whole story on real flights."""

import importlib

import click

__all__ = ["demo"]


@click.command()
@click.option("--nodes", type=int, default=1, show_default=True, help="So many act as one.")
@click.option("--replicas", type=int, help="So many machines have the log of one node.")
@click.option("--arbiter", help="An etcd for --replicas; without it one is started here.")
def demo(nodes: int, replicas: int | None, arbiter: str | None) -> None:
    """Boot a node, load real flights, use every part of it, and tell what happens. With several
    nodes: global queues, messages that move, and one node that is killed. With replicas: the
    machine that leads is killed, and another one takes over."""
    code = importlib.import_module("hms.boot.demo").run(nodes, replicas, arbiter)
    click.get_current_context().exit(code or 0)
