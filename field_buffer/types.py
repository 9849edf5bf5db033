"""Field types: the eight types of a field, as Python values that keep their type.

    code  type    Python value            holds
    1     CHAR    Char, an int            one byte, 0 to 255; given as int, one latin-1 character or one byte
    2     SHORT   Short, an int           16 bits
    3     INT     Int or a plain int      32 bits
    4     LONG    Long or a plain int     64 bits (classic Tmax: 32)
    5     FLOAT   Float, a float          single precision; the value is rounded to it
    6     DOUBLE  Double or a plain float double precision
    7     STRING  String or a plain str   text that UTF-8 can hold; NUL is allowed (classic Tmax: it ends the text)
    8     CARRAY  Carray or plain bytes   bytes
    9     BOOLEAN bool                    JMS's boolean, which Tmax lacks

A plain int is an INT if it fits 32 bits, else a LONG. The wrappers are subclasses of the plain types,
so that `Short(3) == 3`; what does not fit raises PropertyRangeError, a wrong Python type PropertyTypeError.
"""  # noqa: E501 - a table

from typing import Any

from field_buffer.wrappers import (
    INT_MAX,
    INT_MIN,
    LONG_MAX,
    LONG_MIN,
    UNNAMED,
    Carray,
    Char,
    Double,
    FieldType,
    Float,
    Int,
    Long,
    Short,
    String,
    check_text,
    out_of_range,
)
from hms.errors.catalogue import PropertyTypeError

FieldValue = int | float | str | bytes | bool
"""What a field or property holds; the wrappers are among them."""

WRAPPERS: dict[int, type[Any]] = {
    kind.code: kind for kind in (Char, Short, Int, Long, Float, Double, String, Carray)
}
CODES: dict[type, FieldType] = {
    **{kind: FieldType(code) for code, kind in WRAPPERS.items()},
    bool: FieldType.BOOLEAN,
    float: FieldType.DOUBLE,
    str: FieldType.STRING,
    bytes: FieldType.CARRAY,
}
PLAIN_TYPES = frozenset((int, float, str, bytes, bool))
_PLAIN_OF: dict[FieldType, type[Any]] = {
    code: next(base for base in (int, float, str, bytes) if issubclass(kind, base))
    for code, kind in ((FieldType(code), kind) for code, kind in WRAPPERS.items())
}


def infer_type(value: object, name: str = UNNAMED) -> FieldType:
    """The type of a value: a wrapper's own, else what follows from the plain value."""
    code = CODES.get(type(value))
    if code is not None:
        return code
    checked = check_value(value, name)
    if type(checked) is int:
        return FieldType.INT if INT_MIN <= checked <= INT_MAX else FieldType.LONG
    return CODES[type(checked)]


def check_value(value: object, name: str = UNNAMED) -> FieldValue:
    """The value as it is kept: a wrapper or a plain value; others are refused.

    Subclasses of the plain types, such as an IntEnum's member, become plain; what is like bytes
    becomes bytes.
    """
    kind = type(value)
    if kind is str:
        return check_text(value, name)  # type: ignore[arg-type]
    if kind is int:
        if not LONG_MIN <= value <= LONG_MAX:  # type: ignore[operator]
            raise out_of_range("Long", value, name, f"{LONG_MIN} to {LONG_MAX}")
        return value  # type: ignore[return-value]
    if kind in CODES:
        return value  # type: ignore[return-value]
    for base in (int, float, str):
        if isinstance(value, base):
            return check_value(_exactly(base, value), name)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise PropertyTypeError(
        name=name, detail=f"a value of type {kind.__name__} is not a field type"
    )


def field_type(code: int, name: str = UNNAMED) -> FieldType:
    """The type of that number; PropertyTypeError when there is none."""
    try:
        return FieldType(code)
    except ValueError as fault:
        raise PropertyTypeError(name=name, detail=f"there is no type {code}") from fault


def make_typed(code: int, value: Any, name: str = UNNAMED) -> FieldValue:
    """The value as the given type; it must be of that type's Python type and range."""
    if code == FieldType.BOOLEAN:
        if not isinstance(value, bool):
            raise PropertyTypeError(name=name, detail=f"a {type(value).__name__} is not a bool")
        return value
    wrapper = WRAPPERS.get(code)
    if wrapper is None:
        raise PropertyTypeError(name=name, detail=f"there is no type {code}")
    made: FieldValue = value if type(value) is wrapper else wrapper(value, name)
    return made


def plain(value: FieldValue) -> FieldValue:
    """The value without its wrapper, as a codec or a database wants it."""
    kind = type(value)
    return value if kind in PLAIN_TYPES else _exactly(_PLAIN_OF[CODES[kind]], value)


def _exactly(base: type[Any], value: object) -> FieldValue:
    """A value of exactly that type; an enum's str() would be its name, hence the base's own."""
    exact: FieldValue = base(value) if base is not str else str.__str__(value)
    return exact


__all__ = [
    "CODES",
    "INT_MAX",
    "INT_MIN",
    "LONG_MAX",
    "LONG_MIN",
    "PLAIN_TYPES",
    "UNNAMED",
    "WRAPPERS",
    "Carray",
    "Char",
    "Double",
    "FieldType",
    "FieldValue",
    "Float",
    "Int",
    "Long",
    "Short",
    "String",
    "check_value",
    "infer_type",
    "make_typed",
    "plain",
]
