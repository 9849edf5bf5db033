"""Numbers as Java writes them: exact ones are 64-bit longs, approximate ones doubles.

exact         42   0x2A   052   each with an optional L
approximate   7.   .5   1E3   7D   7F; a number with F has the precision of a Java float
"""

import re
import struct

from hms.errors.catalogue import SelectorSyntaxError

LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1

NUMBER = re.compile(
    r"0[xX][0-9a-fA-F]++[lL]?"
    r"|(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?[lLdDfF]?"
)
_DECIMAL = re.compile(r"(?:0|[1-9][0-9]*+)[lL]?")
_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]++[lL]?")
_OCTAL = re.compile(r"0[0-7]++[lL]?")
_APPROXIMATE = re.compile(r"[0-9.]++(?:[eE][+-]?[0-9]++)?[dDfF]?")
_LONG_DIGITS_MAX = 19


def read_number(text: str, position: int) -> int | float:
    """The value of a number; raises SelectorSyntaxError when it is malformed or out of range.

    2**63 passes, because only the parser knows whether a minus stands before it.
    """
    if _DECIMAL.fullmatch(text):
        return _read_decimal(text, position)
    if _HEXADECIMAL.fullmatch(text):
        return _in_range(int(text.rstrip("lL"), 0), text, position)
    if _OCTAL.fullmatch(text):
        return _in_range(int(text.rstrip("lL"), 8), text, position)
    if _APPROXIMATE.fullmatch(text) and text.strip("0123456789"):
        return _read_approximate(text, position)
    raise SelectorSyntaxError(position=position, detail=f"found {shorten(text)}, expected a number")


def out_of_range(text: str, kind: str, position: int) -> SelectorSyntaxError:
    """The error for a number that is well formed and too large."""
    return SelectorSyntaxError(
        position=position, detail=f"found {shorten(text)}, expected a number in the range of {kind}"
    )


def shorten(text: str) -> str:
    """A piece of the selector for an error text, at most 40 characters of it."""
    return text if len(text) <= 40 else f"{text[:37]}..."  # noqa: PLR2004 (said above)


def _read_decimal(text: str, position: int) -> int:
    digits = text.rstrip("lL")
    if len(digits) > _LONG_DIGITS_MAX:  # int() itself refuses thousands of digits
        raise out_of_range(text, "a 64-bit long", position)
    return _in_range(int(digits), text, position)


def _in_range(value: int, text: str, position: int) -> int:
    if value > LONG_MAX + 1:
        raise out_of_range(text, "a 64-bit long", position)
    return value


def _read_approximate(text: str, position: int) -> float:
    value = float(text.rstrip("dDfF"))
    if value == float("inf"):
        raise out_of_range(text, "a double", position)
    return _to_single(value, text, position) if text[-1] in "fF" else value


def _to_single(value: float, text: str, position: int) -> float:
    try:
        single: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        raise out_of_range(text, "a float", position) from None
    return single
