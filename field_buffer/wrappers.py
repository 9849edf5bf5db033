"""The wrappers: field types that a plain Python value does not tell. See field_buffer.types."""

import enum
import struct
from typing import ClassVar, Self

from hms.errors.catalogue import PropertyRangeError, PropertyTypeError


class FieldType(enum.IntEnum):
    """The codes of the types, on the wire and in field keys."""

    CHAR = 1
    SHORT = 2
    INT = 3
    LONG = 4
    FLOAT = 5
    DOUBLE = 6
    STRING = 7
    CARRAY = 8
    BOOLEAN = 9


INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1
_SINGLE = struct.Struct("<f")
_SINGLE_DIGITS = range(6, 10)
_SHOWN_BITS = 128
UNNAMED = "(unnamed)"


class _Integer(int):
    """A whole number of a fixed width."""

    __slots__ = ()
    code: ClassVar[FieldType]
    low: ClassVar[int]
    high: ClassVar[int]

    def __new__(cls, value: int, name: str = UNNAMED) -> Self:
        if not isinstance(value, int) or isinstance(value, bool):
            raise wrong_type(cls, value, name)
        if not cls.low <= value <= cls.high:
            raise out_of_range(cls.__name__, value, name, f"{cls.low} to {cls.high}")
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int.__repr__(self)})"

    def __str__(self) -> str:
        return int.__repr__(self)


class Char(_Integer):
    """HMS_CHAR: one byte, kept as its number; `.text` is its latin-1 character."""

    __slots__ = ()
    code = FieldType.CHAR
    low, high = 0, 255

    def __new__(cls, value: int | str | bytes, name: str = UNNAMED) -> Self:  # noqa: D102 - its class says it
        if isinstance(value, str | bytes):
            if len(value) != 1:
                raise out_of_range("Char", value, name, "one byte or one character")
            value = ord(value)
        return super().__new__(cls, value, name)

    @property
    def text(self) -> str:
        """The character."""
        return chr(self)


class Short(_Integer):
    """HMS_SHORT: 16 bits."""

    __slots__ = ()
    code = FieldType.SHORT
    low, high = -(1 << 15), (1 << 15) - 1


class Int(_Integer):
    """HMS_INT: 32 bits."""

    __slots__ = ()
    code = FieldType.INT
    low, high = INT_MIN, INT_MAX


class Long(_Integer):
    """HMS_LONG: 64 bits, where classic Tmax has 32."""

    __slots__ = ()
    code = FieldType.LONG
    low, high = LONG_MIN, LONG_MAX


class Double(float):
    """HMS_DOUBLE: double precision, infinities and NaN included."""

    __slots__ = ()
    code: ClassVar[FieldType] = FieldType.DOUBLE

    def __new__(cls, value: float, name: str = UNNAMED) -> Self:  # noqa: D102 - its class says it
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise wrong_type(cls, value, name)
        try:
            return super().__new__(cls, value)
        except OverflowError as fault:
            raise out_of_range("Double", value, name, "up to 1.8e308") from fault

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    def __str__(self) -> str:
        return float.__repr__(self)


class Float(Double):
    """HMS_FLOAT: single precision; the value is rounded to the nearest that it can hold."""

    __slots__ = ()
    code = FieldType.FLOAT

    def __new__(cls, value: float, name: str = UNNAMED) -> Self:  # noqa: D102 - its class says it
        exact = Double(value, name)
        try:
            rounded: float = _SINGLE.unpack(_SINGLE.pack(exact))[0]
        except OverflowError as fault:
            raise out_of_range("Float", value, name, "up to 3.4e38") from fault
        return super().__new__(cls, rounded, name)

    def __str__(self) -> str:
        """The shortest text that gives this value again: 0.1 rather than 0.10000000149011612."""
        exact = float(self)
        for digits in _SINGLE_DIGITS:
            short = float(f"{exact:.{digits}g}")
            if abs(short) <= _SINGLE_MAX and _SINGLE.unpack(_SINGLE.pack(short))[0] == exact:
                return repr(short)
        return repr(exact)


_SINGLE_MAX = 3.4028234663852886e38


class String(str):
    """HMS_STRING: text that UTF-8 can hold."""

    __slots__ = ()
    code: ClassVar[FieldType] = FieldType.STRING

    def __new__(cls, value: str, name: str = UNNAMED) -> Self:  # noqa: D102 - its class says it
        if not isinstance(value, str):
            raise wrong_type(cls, value, name)
        return super().__new__(cls, check_text(value, name))

    def __repr__(self) -> str:
        return f"String({str.__repr__(self)})"

    def __str__(self) -> str:
        """Plain text."""
        return self[:]


class Carray(bytes):
    """HMS_CARRAY: bytes."""

    __slots__ = ()
    code: ClassVar[FieldType] = FieldType.CARRAY

    def __new__(cls, value: bytes | bytearray | memoryview, name: str = UNNAMED) -> Self:  # noqa: D102 - its class says it
        if not isinstance(value, bytes | bytearray | memoryview):
            raise wrong_type(cls, value, name)
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return f"Carray({bytes.__repr__(self)})"


def check_text(value: str, name: str = UNNAMED) -> str:
    """The text, if UTF-8 can hold it: lone surrogates cannot cross the wire."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as fault:
            raise out_of_range("String", value, name, "text without lone surrogates") from fault
    return value


def wrong_type(kind: type, value: object, name: str) -> PropertyTypeError:
    """The error for a value of another Python type."""
    return PropertyTypeError(
        name=name, detail=f"a {type(value).__name__} is no value for {kind.__name__}"
    )


def out_of_range(kind: str, value: object, name: str, span: str) -> PropertyRangeError:
    """The error for a value that its type cannot hold."""
    is_huge = isinstance(value, int) and value.bit_length() > _SHOWN_BITS
    shown = "an integer of many digits" if is_huge else ascii(value)[:40]
    return PropertyRangeError(name=name, value=shown, type=kind, range=span)
