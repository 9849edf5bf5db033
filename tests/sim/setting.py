"""What a simulated node is told, and what stands in for the locks of its threads."""

from collections.abc import Callable
from pathlib import Path

from hms.engine.groups.message_sort import SortSettings
from hms.engine.settings import DestinationSettings, EngineSettings
from hms.wire.structures import Limits

NODE_UID = 77
WINDOW = 8
PREFETCH_BYTES = 1_500
LIMITS = Limits(2_000, 1 << 20, WINDOW, 64, 10.0, PREFETCH_BYTES, PREFETCH_BYTES)
NO_WINDOWS = Limits(2_000, 1 << 20, WINDOW, 64, 10.0)
"""As an older node had it: it counts messages alone, and is not polled."""
FLOW = "FLOW_CONTROL"
SETTINGS = EngineSettings(
    blocked_ms_max=200,
    redelivery_limit=3,
    message_bytes_max=2_000,
    transaction_bytes_max=8_000,
    prefetch_max=64,
    prefetch_bytes_max=PREFETCH_BYTES,
    frames_in_flight_max=WINDOW,
    destinations=(
        DestinationSettings(
            "queue", "orders", expired_to="late", messages_max=40, limit_behavior=FLOW
        ),
        DestinationSettings("queue", "ledger", bytes_max=20_000, limit_behavior=FLOW),
        DestinationSettings("queue", "gauge", messages_max=6, limit_behavior="REMOVE_OLDEST"),
        DestinationSettings("queue", "copy", redelivery_limit=-1, sort=SortSettings("color")),
        DestinationSettings("queue", "parts", is_gathering=True, group_life_ms=1_500),
        DestinationSettings("queue", "jobs", redelivery_delay_ms=40, messages_max=40),
        DestinationSettings("queue", "late", redelivery_limit=-1),
        DestinationSettings("queue", "scratch", is_warm=False, redelivery_delay_ms=40),
        DestinationSettings("queue", "ticks", redelivery_limit=-1),
        DestinationSettings("topic", "news"),
        DestinationSettings("topic", "notes"),
        DestinationSettings("topic", "flash", is_warm=False),
    ),
)
STORE = Path("/store")


class Alone:
    """A lock where there is one thread: who waits for it would wait for ever (P5)."""

    def __init__(self) -> None:
        self._is_held = False

    def __enter__(self) -> None:
        assert not self._is_held, "the engine's lock is held across I/O (P5)"
        self._is_held = True

    def __exit__(self, *_: object) -> None:
        self._is_held = False


class Progress:
    """The broker's condition: waiting lets the storage work go on; worker: what does it now."""

    def __init__(self, worker: Callable[[], Callable[[], None] | None]) -> None:
        self._worker = worker

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def notify_all(self) -> None:
        pass

    def wait_for(self, is_done: Callable[[], bool], _timeout: float) -> bool:
        for _ in range(8):
            work = self._worker()
            if is_done() or work is None:
                break
            work()
        return is_done()
