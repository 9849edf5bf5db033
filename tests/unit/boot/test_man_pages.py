"""The manual pages: one for each command, as the format wants them."""

import subprocess

import click
from click.testing import CliRunner

from hms.boot.cli import main


def test_each_command_has_a_manual_page_that_mandoc_takes(tmp_path):
    """A page that a formatter complains of is one that nobody looked at."""
    done = CliRunner().invoke(main, ["man", "--to", str(tmp_path)])
    assert done.exit_code == 0, done.output
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"hms.1", *(f"hms-{name}.1" for name in main.list_commands(None))}
    checked = subprocess.run(
        ["mandoc", "-T", "lint", *sorted(map(str, tmp_path.iterdir()))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_a_page_has_each_command_of_its_group_and_their_options(tmp_path):
    """An option that the page lacks is looked for in the source."""
    CliRunner().invoke(main, ["man", "--to", str(tmp_path)])
    group = main.get_command(None, "message")
    context = click.Context(group, info_name="message")
    text = subprocess.run(
        ["mandoc", "-T", "utf8", "-O", "width=200", str(tmp_path / "hms-message.1")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    plain = "".join(text[i] for i in range(len(text)) if "\b" not in text[i : i + 2])
    for name in group.list_commands(context):
        assert f"hms message {name}" in plain
        for option in group.get_command(context, name).params:
            if isinstance(option, click.Option):
                assert option.opts[0] in plain
