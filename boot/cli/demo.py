"""hms demo: the whole story on real flights."""

import importlib

import click

__all__ = ["demo"]


@click.command()
def demo() -> None:
    """Boot a node, load real flights, use every part of it, and tell what happens."""
    code = importlib.import_module("boot.demo").run()
    click.get_current_context().exit(code or 0)
