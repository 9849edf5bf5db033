"""Faults: what Spark wraps into exceptions of its own becomes an error of ours again.

An error that our code raises in Spark's workers arrives as text in the middle of a traceback. The
text begins with its number, so the class is found again, and with it the exit code and the cure.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from string import Formatter

from hms.errors import catalogue
from hms.errors.catalogue import HistoryError
from hms.errors.tree import HmsError

__all__ = ["as_own", "own_error"]

_DETAIL_MAX = 1000
_OURS = re.compile(r"hms\.errors\.catalogue\.(\w+): HMS-(\d+) (.*)")


def own_error(fault: Exception) -> HmsError:
    """The error of ours that is in an exception of Spark; HistoryError when there is none."""
    told = str(fault).strip()
    found = _OURS.search(told)
    kind = getattr(catalogue, found[1], None) if found else None
    if found is None or not (isinstance(kind, type) and issubclass(kind, HmsError)):
        return HistoryError(detail=f"Spark failed: {told[:_DETAIL_MAX]}")
    return _restored(kind, found[3])


def _restored(kind: type[HmsError], said: str) -> HmsError:
    """An error of that class with the values that its text speaks of."""
    cure = f"(?:\\. {_pattern(kind.cure_text)})?" if kind.cure_text else ""
    whole = re.fullmatch(_pattern(kind.text, is_named=True) + cure, said)
    if whole is None:
        return HistoryError(detail=said)
    return kind(**{name: _value(text) for name, text in whole.groupdict().items()})


def _pattern(text: str, *, is_named: bool = False) -> str:
    """A regular expression for a text of the catalogue, with each value in a group of its name."""
    out, seen = "", set()
    for literal, name, _, _ in Formatter().parse(text):
        out += re.escape(literal)
        if name is not None:
            out += f"(?P<{name}>.*?)" if is_named and name not in seen else ".*?"
            seen.add(name)
    return out


def _value(text: str) -> str | int:
    return int(text) if text.isdecimal() else text


@contextmanager
def as_own() -> Iterator[None]:
    """Whatever Spark raises in the block is raised as an error of ours."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # noqa: PLC0415 - pyspark has it
    from pyspark.errors import PySparkException  # noqa: PLC0415 - loads pyspark

    try:
        yield
    except (PySparkException, Py4JError) as fault:
        raise own_error(fault) from fault
