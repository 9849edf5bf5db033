"""A process that has loaded what commands and programs load, and forks for each that is typed.

A line asks: JSON with words of a command, or a program, where it runs, and which file takes what
it says; a line answers: the exit code. Starting Python and loading HMS for each of some hundred
commands would take most of the time that they take.
"""

import json
import os
import sys
import traceback
from collections.abc import Mapping
from typing import Any

import hms.aio
import hms.testing
import tpmon.tx
import tpmon.xa
from hms.boot import cli


def main() -> None:
    """Answer each line until there is none."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _become(json.loads(line))
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(asked: Mapping[str, Any]) -> None:
    """Be the command or the program, and end with its code."""
    code: Any = 1
    try:
        os.chdir(asked["folder"])
        os.environ.update(asked["environment"])
        _redirect(os.open(asked["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1, 2)
        entered, into = os.pipe()
        os.write(into, b"\n")
        os.close(into)
        _redirect(entered, 0)
        sys.stdin = os.fdopen(0)
        code = _run(asked)
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:  # noqa: BLE001 - as the interpreter does at the end of a program
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def _redirect(opened: int, *numbers: int) -> None:
    for number in numbers:
        os.dup2(opened, number)
    os.close(opened)


def _run(asked: Mapping[str, Any]) -> int:
    sys.path.insert(0, asked["folder"])
    if "program" in asked:
        names = {"__name__": "__main__"}
        exec(compile(asked["program"], "<the block>", "exec"), names)
        return 0
    sys.argv = asked["words"]
    return cli.main() or 0


assert hms.aio
assert hms.testing
assert tpmon.tx
assert tpmon.xa

if __name__ == "__main__":
    main()
