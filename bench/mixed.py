"""An hour of mixed load: `python -m bench.mixed --share 0.7 --minutes 60`.

One node and its clients, a process each, through the public API: durable queue messages, a topic
with 4 subscribers, transacted moves from a queue to another, calls of a service, now and then a
large message, in fixed proportions. First the rate is raised until the node does not follow; then
the load runs at a share of that. A latency counts from when the message was due. Every latency
above 100 ms is a pause, and what probes of the disk and of the processors saw in it is told.

The exit code is 1 when a pause is unexplained, a message is lost, doubled or out of order, or a
client fails.
"""

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

import msgspec

import hms
from bench.mixed_figures import Outcome, faults, summary
from bench.mixed_maximum import find_maximum
from bench.mixed_meter import Meter
from bench.mixed_report import HEAD, outcome_lines, pause_line, picture, row
from bench.mixed_run import Run, mixed_run
from bench.plot import picture_file
from hms.boot.bench.client_pool import BenchFailed

__all__ = ["main", "mixed", "parser"]

_LOOK_S = 0.2


def say(line: str) -> None:
    """A line, at once."""
    print(line, flush=True)


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(description="A mixed load at a share of its maximum.")
    made.add_argument("--share", type=float, default=0.7, help="of the maximum")
    made.add_argument("--minutes", type=float, default=60)
    made.add_argument("--calibrate-s", type=float, default=5, help="of one step to the maximum")
    made.add_argument("--start", type=float, default=500, help="messages a second of the first")
    made.add_argument("--rate", type=float, help="messages a second, instead of looking for them")
    made.add_argument("--row-s", type=float, default=60, help="seconds of a row")
    made.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()))
    made.add_argument("--plant-pause-ms", type=float, default=0, help="stop the node half way")
    made.add_argument("--json", type=Path, help="write all of it there")
    made.add_argument("--plot", type=picture_file, help="an SVG of p99.9 and memory")
    return made


def mixed(options: argparse.Namespace) -> Outcome:
    """Find the maximum, run, and tell; the outcome is also there when a client failed."""
    outcome = Outcome()
    place = tempfile.TemporaryDirectory(prefix="bench-", dir=options.data)
    with place as folder, mixed_run(Path(folder)) as run, hms.connect(run.node.address) as admin:
        try:
            outcome.rate = options.rate or _share(run, outcome, options)
            _load(run, outcome, Meter(run, admin), options)
            run.end_senders()
        except (BenchFailed, hms.HmsError) as fault:
            outcome.faults.append(str(fault))
        run.settled(is_last=True)
        outcome.pauses, outcome.books = run.pauses.done, run.books()
    outcome.faults += faults(outcome.books, outcome.pauses)
    outcome.summary = summary(outcome.minutes) if outcome.minutes else None
    return outcome


def _share(run: Run, outcome: Outcome, options: argparse.Namespace) -> float:
    say(f"looking for the maximum, {options.calibrate_s:g} s a step")
    outcome.maximum = find_maximum(
        lambda rate, steps: run.step(rate, steps * options.calibrate_s), options.start, say
    )
    if not outcome.maximum:
        raise BenchFailed(f"not even {options.start:g} messages a second were achieved")
    say(f"the maximum is {outcome.maximum:,.0f} messages a second")
    return float(outcome.maximum * options.share)


def _load(run: Run, outcome: Outcome, meter: Meter, options: argparse.Namespace) -> None:
    """The rows of the run itself; what came before it is forgotten."""
    say(f"{outcome.rate:,.0f} messages a second for {options.minutes:g} minutes\n{HEAD}")
    run.forget()
    leg = run.begin(outcome.rate, options.minutes * 60)
    end_s = leg.begin_ns / 1e9 + leg.seconds
    plant_s = end_s - leg.seconds / 2 if options.plant_pause_ms else float("inf")
    while (now_s := time.monotonic()) < end_s:
        row_s = now_s + options.row_s
        if end_s - row_s < options.row_s / 2:  # a row of a moment would tell of a moment
            row_s = end_s
        while (now_s := time.monotonic()) < row_s:
            time.sleep(min(_LOOK_S, row_s - now_s))
            run.check()
            if now_s >= plant_s:
                _stop_node(run, options.plant_pause_ms)
                plant_s = float("inf")
            for pause in run.settled():
                say(pause_line(pause, leg.begin_ns))
        outcome.minutes.append(meter.minute())
        say(row(outcome.minutes[-1]))
    run.drain()
    for pause in run.settled(is_last=True):
        say(pause_line(pause, leg.begin_ns))


def _stop_node(run: Run, pause_ms: float) -> None:
    """A pause that the probes cannot explain: it must be found."""
    run.node.pause()
    try:
        time.sleep(pause_ms / 1000)
    finally:
        run.node.resume()


def main() -> None:
    """Run, print, write, and exit with 1 when something is wrong."""
    options = parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and the node with it
    try:
        outcome = mixed(options)
    except (BenchFailed, hms.HmsError) as fault:
        sys.exit(f"it did not begin: {fault}")
    for line in outcome_lines(outcome):
        say(line)
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(outcome)) + b"\n")
    if options.plot and outcome.minutes:
        options.plot.write_text(picture(outcome.minutes), encoding="utf-8")
    sys.exit(1 if outcome.faults else 0)


if __name__ == "__main__":
    main()
