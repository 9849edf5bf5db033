"""The demonstration's service: a running delay statistic per carrier, one flight a message.

Every flight handled is one line of the file that HMS_FLIGHTS_FILE names, written before the
service returns: what was handled can be compared with what was acknowledged. A cancelled flight has
no delay; the service refuses it, and after as many tries as the node allows it is a dead letter.
"""

import json
import os
from pathlib import Path

from tpmon import Request, service

FILE_VARIABLE = "HMS_FLIGHTS_FILE"


class CarrierStatistic:
    """Flights and minutes of departure delay per carrier."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("a", encoding="utf-8", buffering=1)
        self._totals: dict[str, tuple[int, int]] = {}

    def add(self, message_id: str, is_redelivered: bool, carrier: str, delay: int) -> float:
        """Count one flight; the carrier's mean delay so far, in minutes."""
        flights, minutes = self._totals.get(carrier, (0, 0))
        flights, minutes = self._totals[carrier] = flights + 1, minutes + delay
        line = {"id": message_id, "redelivered": is_redelivered, "carrier": carrier}
        self._file.write(json.dumps(line | {"mean": round(minutes / flights, 2)}) + "\n")
        return minutes / flights


_statistic: CarrierStatistic | None = None


def tpsvrinit() -> None:
    """Open the file once, when the server process starts."""
    global _statistic  # noqa: PLW0603 - one server process, one statistic
    _statistic = CarrierStatistic(Path(os.environ[FILE_VARIABLE]))


@service("CARRIER_DELAY")
def carrier_delay(request: Request) -> None:
    """Take one flight into the statistic; a cancelled one is refused."""
    message = request.message
    assert message is not None, "CARRIER_DELAY is a listener"
    assert _statistic is not None, "tpsvrinit has run"
    assert message.message_id is not None, "a received message has an id"
    if "dep_delay" not in message.properties:
        raise ValueError("a cancelled flight has no delay")
    carrier = str(message.properties["carrier"])
    delay = message.get_int("dep_delay")
    _statistic.add(message.message_id, message.redelivered, carrier, delay)
