"""Pages are typed as they stand, block after block, in one fresh folder a page.

A console block types what stands behind its prompts, a sh block every line; a Python block is a
program of its own. A comment above a block says what else becomes of it: `<!-- file: bar.py -->`
writes it into that file (`hms.conf` is added to), `<!-- not run: why -->` leaves it out.
`hms serve` goes on in the background, as in a second terminal.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from hms.testing.ports import free_port
from tests.support.project import ROOT

HOW_TO = ROOT / "docs" / "how-to"
RUN = [ROOT / "README.md", ROOT / "docs" / "tutorial" / "first-queue.md", HOW_TO / "services.md"]
EVERY = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ADDRESS = "tcp://127.0.0.1:7700"
STEP_S = 90
_BLOCK = re.compile(
    r"(?:<!-- (?P<how>file|not run): (?P<what>[^>]*?) -->\n+)?"
    r"^```(?P<language>\w+)[^\n]*\n(?P<text>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
TYPED = ("console", "sh", "bash")


class Block(NamedTuple):
    """A fenced block; how: `file`, `not run`, or nothing."""

    line: int
    language: str
    text: str
    how: str
    what: str


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("language")) + 2
        yield Block(line, found["language"], found["text"], found["how"] or "", found["what"] or "")


class Reader:
    """Who types a page: a folder, a port of its own, and what was started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"tcp://127.0.0.1:{free_port()}"
        self.servers: list[subprocess.Popen[str]] = []
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = os.environ | {
            "PATH": path,
            "HMS_ADDRESS": self.address,
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
        }

    def read(self, block: Block) -> None:
        """Do what a block says."""
        text = block.text.replace(ADDRESS, self.address)
        if block.how == "file":
            target = self.folder / block.what
            before = target.read_text() if target.suffix == ".conf" else ""
            target.write_text(before + text)
        elif block.language in TYPED:
            for line in _lines(block):
                self.type(line)
        elif block.language == "python":
            self.run([sys.executable, "-c", text], text)
        elif block.language == "toml":
            tomllib.loads(text)

    def type(self, line: str) -> None:
        """A line of a shell."""
        if line.startswith(("pip ", "cd ", "mkdir ")):
            return  # installed already, and this folder is the one
        if line.startswith("hms serve "):
            self.serve(line)
            return
        self.run(["bash", "-c", line], line)
        config = self.folder / "hms.conf"
        if line.startswith("hms config init"):
            config.write_text(config.read_text().replace(ADDRESS, self.address))

    def run(self, words: list[str], said: str) -> None:
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self.environment,
            input="\n",
            capture_output=True,
            text=True,
            timeout=STEP_S,
            check=False,
        )
        assert done.returncode == 0, f"{said}\n{done.stdout}{done.stderr}"

    def serve(self, line: str) -> None:
        server = subprocess.Popen(
            line.split(), cwd=self.folder, env=self.environment, stderr=subprocess.PIPE, text=True
        )
        self.servers.append(server)
        assert server.stderr is not None
        said = ""
        while "serving" not in said:
            said = server.stderr.readline()
            assert said, f"{line} has ended"

    def leave(self) -> None:
        for server in self.servers:
            server.terminate()
            server.communicate(timeout=STEP_S)
        if (self.folder / "hms.conf").exists():
            words = ["hms", "down", "--now"]
            subprocess.run(
                words, cwd=self.folder, env=self.environment, check=False, timeout=STEP_S
            )


def _lines(block: Block) -> Iterator[str]:
    for line in block.text.replace("\\\n", " ").splitlines():
        if block.language != "console":
            if line.strip() and not line.startswith("#"):
                yield line
        elif line.startswith("$ "):
            yield line[2:]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page, tmp_path):
    """The first command of a page that fails is the last one its reader tries."""
    assert shutil.which("bash")
    reader = Reader(tmp_path)
    try:
        for block in blocks(page):
            if block.how != "not run":
                try:
                    reader.read(block)
                except Exception as fault:
                    fault.add_note(f"{page.relative_to(ROOT)}:{block.line}")
                    raise
    finally:
        reader.leave()


def test_every_toml_and_json_block_can_be_read():
    """Also of the pages that are not run."""
    faults = []
    for page in EVERY:
        for block in blocks(page):
            if block.language == "toml":
                try:
                    tomllib.loads(block.text)
                except tomllib.TOMLDecodeError as fault:
                    faults.append(f"{page.relative_to(ROOT)}:{block.line}: {fault}")
    assert faults == []
