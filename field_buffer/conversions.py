"""Conversions: JMS's table for properties, and the freer one of field buffers.

JMS 3.1 §3.5.4, with Char in the place of byte. A value written as the row's type can be read as:

              boolean  char  short  int  long  float  double  string  carray
    boolean      x                                              x
    char                x      x     x     x                    x
    short                      x     x     x                    x
    int                              x     x                    x
    long                                   x                    x
    float                                        x      x       x
    double                                              x       x
    string       x      x      x     x     x     x      x       x
    carray                                                              x

Between fields every number becomes any other that can hold it (fractions are cut off) and text is
read as a number where it is one; see `convert`.
"""

import math
import re
from collections.abc import Callable

from field_buffer.types import (
    UNNAMED,
    Char,
    FieldType,
    FieldValue,
    infer_type,
    make_typed,
    plain,
)
from hms.errors.catalogue import PropertyConversionError, PropertyRangeError
from hms.errors.tree import HmsError

_T = FieldType
_INTEGERS = (_T.CHAR, _T.SHORT, _T.INT, _T.LONG)
_FLOATS = (_T.FLOAT, _T.DOUBLE)
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)

READABLE_AS: dict[FieldType, frozenset[FieldType]] = {
    _T.BOOLEAN: frozenset((_T.BOOLEAN, _T.STRING)),
    _T.CHAR: frozenset((*_INTEGERS, _T.STRING)),
    _T.SHORT: frozenset((_T.SHORT, _T.INT, _T.LONG, _T.STRING)),
    _T.INT: frozenset((_T.INT, _T.LONG, _T.STRING)),
    _T.LONG: frozenset((_T.LONG, _T.STRING)),
    _T.FLOAT: frozenset((_T.FLOAT, _T.DOUBLE, _T.STRING)),
    _T.DOUBLE: frozenset((_T.DOUBLE, _T.STRING)),
    _T.STRING: frozenset((_T.BOOLEAN, *_INTEGERS, *_FLOATS, _T.STRING)),
    _T.CARRAY: frozenset((_T.CARRAY,)),
}


def read_as(value: FieldValue, wanted: FieldType, name: str = UNNAMED) -> FieldValue:
    """A property's value as another type, by JMS's table; a plain Python value.

    Raises PropertyConversionError for an empty cell, and for text that is no such number.
    """
    own = infer_type(value)
    if wanted not in READABLE_AS[own]:
        raise _refused(own, wanted, name)
    if wanted == _T.STRING:
        return text_of(value)
    if own == _T.STRING:
        return _parsed(str(value), wanted, name)
    return plain(value)


def text_of(value: FieldValue) -> str:
    """The text of a value: true and false, decimal digits, Python's shortest float."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def convert(value: FieldValue, wanted: FieldType, name: str = UNNAMED) -> FieldValue:
    """A field's value as another type, by the rules of field buffers; a value of exactly that type.

    Raises PropertyRangeError when it does not fit, PropertyConversionError when it is no number.
    """
    own = infer_type(value)
    if own == wanted:
        return make_typed(wanted, value, name)
    if wanted == _T.BOOLEAN:
        return _parsed(str(value), wanted, name) if own == _T.STRING else bool(value)
    if wanted in _INTEGERS:
        return make_typed(wanted, _integer(value, own, wanted, name), name)
    if wanted in _FLOATS:
        return make_typed(wanted, _number(value, own, wanted, name), name)
    text = _field_text(value, own, name)
    return make_typed(wanted, text if wanted == _T.STRING else _bytes_of(value, text), name)


def _integer(value: FieldValue, own: FieldType, wanted: FieldType, name: str) -> FieldValue:
    if wanted == _T.CHAR and isinstance(value, str | bytes):
        return value  # Char takes a single character or byte itself
    number = _number(value, own, wanted, name)
    if isinstance(number, float) and not math.isfinite(number):
        raise PropertyRangeError(name=name, value=str(number), type=wanted.name, range="finite")
    return math.trunc(number)


def _number(value: FieldValue, own: FieldType, wanted: FieldType, name: str) -> int | float:
    if isinstance(value, int | float):
        return value + 0
    text = _field_text(value, own, name).strip()
    if _WHOLE_NUMBER.fullmatch(text):
        return int(text)
    return _from_text(float, text, wanted, name)


def _field_text(value: FieldValue, own: FieldType, name: str) -> str:
    if isinstance(value, Char):
        return value.text
    if not isinstance(value, bytes):
        return text_of(value)
    try:
        return value.decode()
    except UnicodeDecodeError as fault:
        raise _refused(own, _T.STRING, name) from fault


def _bytes_of(value: FieldValue, text: str) -> bytes:
    return text.encode("latin-1" if isinstance(value, Char) else "utf-8")


def _parsed(text: str, wanted: FieldType, name: str) -> FieldValue:
    """What the valueOf methods of Java would read from a text."""
    if wanted == _T.BOOLEAN:
        return text.lower() == "true"
    if wanted in _FLOATS:
        return plain(make_typed(wanted, _from_text(float, text, wanted, name), name))
    if not _WHOLE_NUMBER.fullmatch(text):
        raise _refused(_T.STRING, wanted, name)
    try:
        return plain(make_typed(wanted, int(text), name))
    except HmsError as fault:
        raise _refused(_T.STRING, wanted, name) from fault


def _from_text(kind: Callable[[str], float], text: str, wanted: FieldType, name: str) -> float:
    try:
        if "_" in text:  # a habit of Python's that no other language reads
            raise _refused(_T.STRING, wanted, name)
        return kind(text)
    except ValueError as fault:
        raise _refused(_T.STRING, wanted, name) from fault


def _refused(own: FieldType, wanted: FieldType, name: str) -> PropertyConversionError:
    return PropertyConversionError(name=name, type=own.name, wanted=wanted.name)
