"""Each command of the pages for the night is run as it stands there."""

import re
import shlex

import pytest
from click.testing import CliRunner

import hms
import hms.testing
from hms.boot.cli import main

CONFIG = {"hms": {"queue": {"orders": {"redelivery_limit": 1}, "broken": {}, "manual": {}}}}
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
RULES = re.compile(r"```text\n(\* night.rules.*?)```", re.DOTALL)
PAGES = ("dead-letters", "backup-and-restore")


@pytest.mark.parametrize("name", PAGES)
def test_each_command_of_the_page_works(name, project_root, tmp_path, monkeypatch):
    """Who reads them at night has no time for a page that is wrong."""
    page = (project_root / "docs" / "how-to" / f"{name}.md").read_text()
    lines = [line for block in BLOCK.findall(page) for line in block.splitlines()]
    monkeypatch.chdir(tmp_path)
    for rules in RULES.findall(page):
        (tmp_path / "night.rules").write_text(rules)
    with hms.testing.node(store=tmp_path / "store", config=CONFIG) as node:
        monkeypatch.setenv("HMS_CONFIG", str(node.config_file))
        with hms.connect(node.address) as connection:
            with connection.session() as session:
                session.producer("orders").send(b"two coffees")
            with connection.session(transacted=True) as session:
                assert session.consumer("orders").receive(timeout_s=20) is not None
                session.rollback()
        for line in lines:
            words = shlex.split(line.removeprefix("$ hms "))
            done = CliRunner().invoke(main, words)
            assert done.exit_code == 0, f"{line}: {done.output} {done.exception}"

    assert len(lines) >= 5
