"""Where the time goes: `python -m bench.profile W2 --out profiles`; needs py-spy.

Writes for the node and for each client a ranked table and a flame graph; where perf is there, a
table of the node's native functions too.
"""

import shutil
import signal
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.command import parser, said, workloads
from bench.flame import graph, ranked, read, tree
from hms.boot.bench.client_pool import client_pool
from hms.boot.bench.systems import HMS
from hms.boot.bench.workloads import Workload

_PER_S = 400
_STOP_S = 30
_PERF_LINES = 25


def _tool(name: str) -> str | None:
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)


@contextmanager
def _recording(pids: Mapping[str, int], folder: Path, options: Namespace) -> Iterator[None]:
    """Sample processes while the block runs."""
    spy = _tool("py-spy")
    if spy is None:
        sys.exit("bench.profile needs py-spy: pip install py-spy")
    recorders = [_spy(spy, pid, folder / f"{name}.raw", options) for name, pid in pids.items()]
    recorders += _perf(pids, folder) if options.perf else []
    try:
        yield
    finally:
        for recorder in recorders:
            recorder.send_signal(signal.SIGINT)
        for recorder in recorders:
            recorder.wait(_STOP_S)


def _spy(spy: str, pid: int, out: Path, options: Namespace) -> "subprocess.Popen[bytes]":
    how = ["--format", "raw", "--rate", str(_PER_S), "--duration", "3600", "--threads"]
    how += ["--nonblocking"] if options.lines else ["--nonblocking", "--function"]
    how += ["--gil"] if options.gil else []
    return _start([spy, "record", "--pid", str(pid), *how, "--output", str(out)])


def _perf(pids: Mapping[str, int], folder: Path) -> list["subprocess.Popen[bytes]"]:
    """Native functions of the node, where perf is there."""
    perf = _tool("perf")
    out = str(folder / "perf.data")
    return (
        [_start([perf, "record", "-q", "-g", "-p", str(pids["node"]), "-o", out])] if perf else []
    )


def _start(command: Sequence[str]) -> "subprocess.Popen[bytes]":
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)


def _run(workload: Workload, folder: Path, options: Namespace) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.data) as place,
        HMS.run(Path(place), workload.needs()) as running,
    ):
        if workload.is_filled:
            with client_pool([workload.fill(HMS, running)]) as filling:
                filling.go()
                filling.reports(300)
        with client_pool(workload.tasks(HMS, running)) as clients:
            named = zip(workload.roles, clients.pids, strict=True)
            pids = {f"{role}{i}": pid for i, (role, pid) in enumerate(named)}
            with _recording({"node": running.pids[0], **pids}, folder, options):
                clients.go()
                clients.reports(300)


def _write(folder: Path, title: str) -> None:
    for path in sorted(folder.glob("*.raw")):
        stacks = read(path)
        lines = [f"{'own':>7} {'whole':>7}  {title}: {path.stem}, {sum(stacks.values())} samples"]
        lines += [f"{own:7.1%} {whole:7.1%}  {name}" for name, own, whole in ranked(stacks)]
        path.with_suffix(".txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        text = graph(tree(stacks), f"{title}: {path.stem}")
        path.with_suffix(".svg").write_text(text, encoding="utf-8")
        print("\n".join(lines))
    if (folder / "perf.data").exists():
        command = ["perf", "report", "-i", str(folder / "perf.data"), "--stdio", "--no-children"]
        found = subprocess.run(
            [*command, "-g", "none"], capture_output=True, text=True, check=False
        )
        kept = [line for line in found.stdout.splitlines() if line.strip() and line[0] != "#"]
        print("\n".join(kept[:_PERF_LINES]))


def main() -> None:
    """Profile each workload that was named."""
    made = parser("Where the time of node and clients goes.")
    made.add_argument("--out", type=Path, default=Path("profiles"))
    made.add_argument("--lines", action="store_true", help="by line instead of by function")
    made.add_argument("--gil", action="store_true", help="only who holds the interpreter's lock")
    made.add_argument("--perf", action="store_true", help="native functions of the node too")
    options = made.parse_args()
    for workload in workloads(options):
        folder = options.out / workload.name
        folder.mkdir(parents=True, exist_ok=True)
        said(f"profiling {workload.name}: {workload.title}")
        _run(workload, folder, options)
        _write(folder, f"{workload.name} {workload.title}")


if __name__ == "__main__":
    main()
