"""Who reads a page types it as it stands, block after block, in one fresh folder.

A console block types what stands behind its prompts, a sh block every line; a Python block is a
program of its own, a toml block must be readable. Comments, which no reader sees, say what else:

    <!-- file: bar.py -->      the next block is written into that file (`hms.conf` is added to)
    <!-- not run: why -->      the next block is left out
    <!-- with: 12 = COMMAND -->  what the command prints stands in the next block instead of 12
    <!-- needs: bank -->       two databases, whose addresses stand in for those of the page
    <!-- says no: hms status -->  that line of the next block ends with another code than 0
    <!-- first:                  lines of a shell that are typed here, for example to boot a node,
    hms boot -->                 `first python:` for a program

`hms serve` goes on in the background, as in a second terminal.
"""

import json
import os
import re
import select
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from hms.testing.ports import free_port
from tests.support.project import ROOT

_PORT = re.compile(r"\b7[78]\d\d\b")
"""Ports of the pages, such as 7700; each page has others, which are free."""
STEP_S = 240
DOCTOR = (0, 1, 3)
"""What it finds of the machine that runs the tests is another matter."""
TYPED = ("console", "sh", "bash")
_PART = re.compile(
    r"^<!-- (?P<how>file|not run|with|says no|needs|first)(?P<of> \w+)?:\s(?P<what>.*?)\s*-->"
    r"|^```(?P<language>\w+)[^\n]*\n(?P<text>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
_NEEDS_A_SHELL = re.compile(r"[|<>&;$`*]")


class Block(NamedTuple):
    """A fenced block, or what a comment has typed before it; how: what comments say of it."""

    line: int
    language: str
    text: str
    how: dict[str, str]
    is_seen: bool

    @property
    def runs(self) -> bool:
        return "not run" not in self.how and self.language in (*TYPED, "python")


def blocks(page: Path) -> Iterator[Block]:
    """What a page has typed, in order."""
    text = page.read_text(encoding="utf-8")
    how: dict[str, str] = {}
    for found in _PART.finditer(text):
        line = text.count("\n", 0, found.start()) + 2
        if found["language"]:
            yield Block(line, found["language"], found["text"], how, is_seen=True)
            how = {}
        elif (found["how"], found["what"]) == ("needs", "bank"):
            yield Block(line, "bank", "", {}, is_seen=False)
        elif found["how"] == "first":
            language = (found["of"] or "sh").strip()
            yield Block(line, language, found["what"], how, is_seen=False)
            how = {}
        else:
            how[found["how"]] = found["what"]


def warm_shell() -> "subprocess.Popen[str]":
    """One for all pages of a test run."""
    words = [sys.executable, "-m", "tests.acceptance.warm_shell"]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)


class Reader:
    """Who types a page: a folder, a port of its own, and what was started."""

    def __init__(
        self, folder: Path, warm: subprocess.Popen[str], bank: Callable[[], Mapping[str, str]]
    ) -> None:
        self.root = self.folder = folder
        self._bank = bank
        self._stands_for: dict[str, str] = {}
        self._ports: dict[str, str] = {}
        self.address = self._with_ports("tcp://127.0.0.1:7700")
        self.is_booted = False
        self.servers: list[subprocess.Popen[str]] = []
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = {
            "PATH": path,
            "HMS_ADDRESS": self.address,
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
        }
        self.said = folder.with_name(f"{folder.name}.said")
        self.config = folder / "hms.conf"
        self.warm = warm

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers:
            server.terminate()
            server.communicate(timeout=STEP_S)
        if self.config.exists():
            for node in tomllib.loads(self.config.read_text())["node"]:
                self._asked(words=["hms", "down", "--now", "--node", node])

    def read(self, page: Path) -> None:
        """Type all of a page in a folder of its own; the error says at which line. The pages of a
        book share the node of the first that boots one."""
        if self.config.exists():
            self.environment["HMS_CONFIG"] = str(self.config)
        self.folder = self.root / f"{page.parent.name}-{page.stem}"
        self.folder.mkdir(parents=True)
        if "HMS_CONFIG" not in self.environment:
            self.config = self.folder / "hms.conf"
        for block in blocks(page):
            try:
                self._do(block)
            except BaseException as fault:
                fault.add_note(f"{page.relative_to(ROOT)}:{block.line}")
                raise

    def _do(self, block: Block) -> None:
        if block.language == "bank":
            self._stands_for |= self._bank()
        if "not run" in block.how:
            return
        text = self._meant(block)
        if "file" in block.how:
            target = self.folder / block.how["file"]
            target.parent.mkdir(parents=True, exist_ok=True)
            before = target.read_text() if target.suffix == ".conf" and target.exists() else ""
            target.write_text(before + text)
        elif block.language in TYPED:
            for line in _lines(block.language, text):
                if not block.is_seen and self._is_done(line):
                    continue
                no = block.how.get("says no")
                self.type(line, says_no=no is not None and line.startswith(no))
        elif block.language == "python":
            self._must(text, program=text)
        elif block.language == "toml":
            tomllib.loads(text)

    def _meant(self, block: Block) -> str:
        """The text with what stands here for what the page shows."""
        text = self._with_ports(block.text).replace("//0.0.0.0:", "//127.0.0.1:")
        for written, meant in self._stands_for.items():
            text = text.replace(written, meant)
        if "with" in block.how:
            shown, _, command = block.how["with"].partition(" = ")
            assert shown in text, f"{shown} is not in the block"
            text = text.replace(shown, self._printed(["bash", "-c", command]).strip())
        return text

    def type(self, line: str, *, says_no: bool = False) -> None:
        """A line of a shell."""
        if line.startswith(("pip ", "cd ")):
            return  # installed already, and this folder is the one
        if line.startswith("hms serve "):
            self._serve(line)
        elif line.startswith("hms ") and not _NEEDS_A_SHELL.search(line):
            self._must(line, words=shlex.split(line), says_no=says_no)
        else:
            self._printed(["bash", "-c", line], says_no=says_no)
        if line.startswith(("hms boot", "hms down")):
            self.is_booted = line.startswith("hms boot")
        if line.startswith("hms config init"):
            self.config.write_text(self._with_ports(self.config.read_text()))

    def _with_ports(self, text: str) -> str:
        return _PORT.sub(lambda found: self._ports.setdefault(found[0], str(free_port())), text)

    def _is_done(self, line: str) -> bool:
        """Whether a page before has left it done; the pages of a book share a node."""
        if line == "hms config init":
            return self.config.exists()
        return line == "hms boot" and self.is_booted

    def _must(self, typed: str, *, says_no: bool = False, **what: Any) -> None:
        code = self._asked(**what)
        is_right = code != 0 if says_no else code == 0
        is_right |= typed.startswith("hms doctor") and code in DOCTOR
        assert is_right, f"{typed}\n{self.said.read_text()}"

    def _asked(self, **what: Any) -> int:
        """The exit code of a command or a program in a fork of the warm shell."""
        asked = {"folder": str(self.folder), "environment": self.environment}
        assert self.warm.stdin is not None
        assert self.warm.stdout is not None
        self.warm.stdin.write(json.dumps(asked | {"said": str(self.said)} | what) + "\n")
        self.warm.stdin.flush()
        poll = select.poll()  # select() refuses a descriptor above 1023
        poll.register(self.warm.stdout, select.POLLIN)
        assert poll.poll(STEP_S * 1000), f"{what} did not end within {STEP_S} s"
        return int(self.warm.stdout.readline())

    def _printed(self, words: Sequence[str], *, says_no: bool = False) -> str:
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=os.environ | self.environment,
            input="\n",
            capture_output=True,
            text=True,
            timeout=STEP_S,
            check=False,
        )
        assert (done.returncode != 0) is says_no, f"{words[-1]}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _serve(self, line: str) -> None:
        server = subprocess.Popen(
            line.split(),
            cwd=self.folder,
            env=os.environ | self.environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.servers.append(server)
        assert server.stderr is not None
        said = ""
        while "serving" not in said:
            said = server.stderr.readline()
            assert said, f"{line} has ended"


def _lines(language: str, text: str) -> Iterator[str]:
    for line in text.replace("\\\n", " ").splitlines():
        if language != "console":
            if line.strip() and not line.startswith("#"):
                yield line
        elif line.startswith("$ "):
            yield line[2:]
