"""hms history package and hms history java: what spark-submit wants to know."""

from pathlib import Path

import click

from hms.history.java import ensure_java
from hms.history.package import write_package

__all__ = ["java_command", "package_command"]


@click.command("package")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=".",
    show_default=True,
    help="The folder for both files.",
)
def package_command(out: Path) -> None:
    """Write hms-history.zip and hms-history.py, for spark-submit --py-files."""
    packed, job = write_package(out)
    click.echo(f"spark-submit --master URL --py-files {packed} {job} --help")


@click.command("java")
def java_command() -> None:
    """Print the Java home that Spark gets, for JAVA_HOME of spark-submit."""
    click.echo(ensure_java())
