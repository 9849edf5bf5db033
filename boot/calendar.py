"""The node's calendar: cron expressions in time zones (F-D4). Reads no clock.

The expressions are those of Debian's cron, with its rules where a clock is put forward or back:
what falls into the hour that is left out comes right behind it, and nothing comes twice.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from hms.errors.catalogue import InvalidSchedule

__all__ = ["CronCalendar"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIELDS: Final = 5


class CronCalendar:
    """Computes when cron expressions are due."""

    def next_ms(self, cron: str, time_zone: str, after_ms: int) -> int | None:
        """The first time after that one, in milliseconds since 1970 UTC; None when there is none
        within the next fifty years. Raises InvalidSchedule."""
        try:
            after = (_EPOCH + timedelta(milliseconds=after_ms)).astimezone(_zone(time_zone))
            if len(cron.split()) != _FIELDS:
                detail = "it has five fields: minute, hour, day, month, day of the week"
                raise InvalidSchedule(name=cron, detail=detail)
            found = next(CronSim(cron, after))
        except (StopIteration, OverflowError):
            return None
        except CronSimError as fault:
            raise InvalidSchedule(name=cron, detail=f"cron expression: {fault}") from fault
        except ValueError:  # the year 10,000
            return None
        return round((found - _EPOCH) / timedelta(milliseconds=1))


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError) as fault:
        detail = "there is no such time zone; such as Europe/Berlin, Asia/Seoul or UTC"
        raise InvalidSchedule(name=name, detail=detail) from fault
