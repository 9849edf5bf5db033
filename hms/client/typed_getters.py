"""Typed getters: a property read as another type, by the table of JMS 3.1 §3.5.4."""

from field_buffer.conversions import read_as
from field_buffer.types import FieldType, FieldValue


class Getters:
    """The getters of a Message; the table stands in field_buffer.conversions.

    All raise PropertyNotFound, and PropertyConversionError where the table has no cell for it or a
    text is no such number. What is returned is plain Python.
    """

    __slots__ = ()

    def property(self, name: str) -> FieldValue:
        """A property or reserved property as it is."""
        raise NotImplementedError

    def get_boolean(self, name: str) -> bool:
        """From boolean, or string: "true" in any case is True, everything else False."""
        return bool(self._read(name, FieldType.BOOLEAN))

    def get_byte(self, name: str) -> int:
        """From char, or string; 0 to 255."""
        return int(self._read(name, FieldType.CHAR))

    def get_short(self, name: str) -> int:
        """From char, short, or string."""
        return int(self._read(name, FieldType.SHORT))

    def get_int(self, name: str) -> int:
        """From char, short, int, or string."""
        return int(self._read(name, FieldType.INT))

    def get_long(self, name: str) -> int:
        """From char, short, int, long, or string."""
        return int(self._read(name, FieldType.LONG))

    def get_float(self, name: str) -> float:
        """From float, or string."""
        return float(self._read(name, FieldType.FLOAT))

    def get_double(self, name: str) -> float:
        """From float, double, or string."""
        return float(self._read(name, FieldType.DOUBLE))

    def get_string(self, name: str) -> str:
        """From every type but carray."""
        return str(self._read(name, FieldType.STRING))

    def get_bytes(self, name: str) -> bytes:
        """From carray only."""
        value = self._read(name, FieldType.CARRAY)
        assert isinstance(value, bytes)
        return value

    def _read(self, name: str, wanted: FieldType) -> FieldValue:
        return read_as(self.property(name), wanted, name)
