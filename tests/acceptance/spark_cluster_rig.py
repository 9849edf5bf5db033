"""A Spark cluster on loopback: a master and workers, each ended by its own process id."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from hms.history import ensure_java

LATEST_S = 240
BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a Java process that lives for seconds: what it compiled for long use came after its end."""
_MASTER = re.compile(r"spark://127\.0\.0\.1:\d+")
_REGISTERED = re.compile(r"Successfully registered with master")
BIN = Path(pyspark.__file__).parent / "bin"


def environment():
    """What Spark's own scripts need."""
    own = {"JAVA_HOME": str(ensure_java()), "PYSPARK_PYTHON": sys.executable}
    own |= {"SPARK_DAEMON_JAVA_OPTS": BRIEF, "SPARK_DAEMON_MEMORY": "256m"}
    return {**os.environ, **own, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}


@contextmanager
def _daemon(
    folder: Path, name: str, pattern: re.Pattern[str], *arguments: str
) -> Iterator[Callable[[], str]]:
    """A process of the cluster; waits for what it says first that the pattern matches."""
    log = folder / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(BIN / "spark-class"), *arguments],
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            env=environment(),
            cwd=folder,
        )
    try:
        yield lambda: _said(log, pattern, process)
    finally:
        process.terminate()
        process.wait(LATEST_S)


def _said(log: Path, pattern: re.Pattern[str], process: subprocess.Popen[bytes]) -> str:
    until = time.monotonic() + LATEST_S
    while (found := pattern.search(log.read_text(errors="replace"))) is None:
        assert process.poll() is None, log.read_text(errors="replace")
        assert time.monotonic() < until, log.read_text(errors="replace")
        time.sleep(0.1)
    return found[0]


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """The URL of a master with so many workers of one core each."""
    deploy = "org.apache.spark.deploy"
    ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        master = (f"{deploy}.master.Master", *ports)
        url = stack.enter_context(_daemon(folder, "master", _MASTER, *master))()
        waits = []
        for number in range(workers):
            own = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work{number}"))
            worker = (f"{deploy}.worker.Worker", *ports, *own, url)
            made = _daemon(folder, f"worker{number}", _REGISTERED, *worker)
            waits.append(stack.enter_context(made))
        for is_registered in waits:
            is_registered()
        yield url


def submit(url: str, packed: Path, job: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """spark-submit, as an operator types it."""
    settings = (
        "spark.driver.host=127.0.0.1",
        "spark.driver.bindAddress=127.0.0.1",
        f"spark.driver.extraJavaOptions={BRIEF}",
        f"spark.executor.extraJavaOptions={BRIEF}",
        "spark.sql.shuffle.partitions=4",
    )
    own = [part for setting in settings for part in ("--conf", setting)]
    own += ["--executor-memory", "512m", "--master", url, "--py-files", str(packed), str(job)]
    return subprocess.run(
        [str(BIN / "spark-submit"), *own, *arguments],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=packed.parent,
        timeout=LATEST_S * 6,
        check=False,
    )
