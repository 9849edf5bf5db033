"""The system calls of a unit, and none other, for a program and its children:

PYTHON -m tests.support.syscall_filter UNIT PROGRAM OPTIONS…
"""

import ctypes
import errno
import os
import platform
import re
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

__all__ = ["allowed"]

LOAD, EQUALS, RETURN = 0x20, 0x15, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
NUMBER_AT, ARCHITECTURE_AT = 0, 4
ARCHITECTURES = {"x86_64": (0xC000003E, "unistd_64.h"), "aarch64": (0xC00000B7, "unistd.h")}
NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2


def allowed(unit):
    """The names that the lines of a unit allow, which begin with a list of what is."""
    found = set(_expanded("@default"))
    for line in re.findall(r"^SystemCallFilter=(.+)$", Path(unit).read_text(), re.MULTILINE):
        names = {name for word in line.lstrip("~").split() for name in _expanded(word)}
        found = found - names if line.startswith("~") else found | names
    return found


def _expanded(word):
    if not word.startswith("@"):
        return [word]
    said = subprocess.run(
        ["systemd-analyze", "syscall-filter", "--no-pager", word],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.strip() for line in said.stdout.splitlines()[1:]]
    return [name for row in rows if row and row[0] != "#" for name in _expanded(row)]


def _numbers():
    """Of the calls of this machine, by name."""
    folder = Path("/usr/include", sysconfig.get_config_var("MULTIARCH") or "", "asm")
    header = folder / ARCHITECTURES[platform.machine()][1]
    return dict(re.findall(r"#define __NR_(\w+) (\d+)", header.read_text()))


def _program(names):
    """As the kernel takes it: what is not allowed fails with EPERM, as the unit says."""
    numbers, refused = _numbers(), ERRNO | errno.EPERM
    steps = [(LOAD, 0, 0, ARCHITECTURE_AT), (EQUALS, 1, 0, ARCHITECTURES[platform.machine()][0])]
    steps += [(RETURN, 0, 0, refused), (LOAD, 0, 0, NUMBER_AT)]
    for name in sorted(names & numbers.keys()):
        steps += [(EQUALS, 0, 1, int(numbers[name])), (RETURN, 0, 0, ALLOW)]
    steps.append((RETURN, 0, 0, refused))
    return b"".join(struct.pack("=HBBI", *step) for step in steps), len(steps)


def main(unit, *program):
    """Have the kernel refuse all others, from here on."""
    data, count = _program(allowed(unit))
    held = ctypes.create_string_buffer(data, len(data))
    told = ctypes.create_string_buffer(struct.pack("HxxxxxxP", count, ctypes.addressof(held)))
    libc = ctypes.CDLL(None, use_errno=True)
    for asked in ((NO_NEW_PRIVILEGES, 1, 0, 0, 0), (SECCOMP, FILTER, told, 0, 0)):
        if libc.prctl(*asked):
            raise OSError(ctypes.get_errno(), "the filter is refused")
    os.execvp(program[0], program)


if __name__ == "__main__":
    main(*sys.argv[1:])
