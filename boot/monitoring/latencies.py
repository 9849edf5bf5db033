"""Latencies: how long messages waited and were held, from a sample of each place a look.

A place is looked at each second, of more than 500 each some seconds. What is timed is the first
message of a delivery that had not been out before.
"""

from itertools import islice
from typing import Any

from hms.engine.queue.delivery_sample import DeliverySample
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.session.session_objects import Consumer
from hms.server.histograms import Histogram

__all__ = ["Latencies"]

BOUNDS_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0),
)
"""The clock of a message has milliseconds, and it may wait for hours."""
LOST_MS = 60_000
"""Held for so long it is looked for: what came back is never acknowledged under this delivery."""
HOLDERS_MAX = 50


class Latencies:
    """look() under the engine's lock, figures() in any thread."""

    def __init__(self) -> None:
        self._waited = {is_durable: Histogram(BOUNDS_S) for is_durable in (True, False)}
        self._held = {is_durable: Histogram(BOUNDS_S) for is_durable in (True, False)}

    def look(self, place: Queue | Subscription, now_ms: int) -> None:
        """Take what a place has timed."""
        line, sample = place.line, place.line.sample
        if sample is None:
            if place.consumers:
                line.sample = DeliverySample()
            return
        if sample.message_id and (
            not line.out_count
            or (now_ms - sample.since_ms > LOST_MS and not _is_out(sample, place))
        ):
            sample.give_up()
        waited_ms, held_ms = sample.take()
        if waited_ms is not None:
            self._waited[place.is_durable].observe(waited_ms / 1000)
        if held_ms is not None:
            self._held[place.is_durable].observe(held_ms / 1000)
        if sample.is_armed and not place.consumers:
            line.sample = None

    def figures(self) -> dict[str, Any]:
        """For metrics."""
        return {
            name: [
                [word, found[is_durable].describe()]
                for word, is_durable in (("true", True), ("false", False))
            ]
            for name, found in (("delivery_latency", self._waited), ("ack_latency", self._held))
        }


def _is_out(sample: DeliverySample, place: Queue | Subscription) -> bool:
    holders = [one for one in islice(place.holders, HOLDERS_MAX) if isinstance(one, Consumer)]
    return sample.is_out_at(holders) or len(place.holders) > HOLDERS_MAX
