"""FieldBuffer: named or numbered fields, each with one or more occurrences.

A field is said by its name or by its key, (type << 26) + number. A key fixes the type of the
values; so does a name that a loaded field table knows (see fdl.py), and then name and key mean the
same field. Other names take values of any type. Whatever is refused changes nothing.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Self

import msgspec

from field_buffer.conversions import convert
from field_buffer.fdl import (
    BADFLDKEY,
    FBEBADFB,
    FBEBADFLD,
    FBENOENT,
    FIELDS,
    NUMBER_BITS,
    NUMBER_MAX,
    FieldTable,
    field_error,
)
from field_buffer.names import check_name
from field_buffer.types import (
    CODES,
    PLAIN_TYPES,
    FieldType,
    FieldValue,
    check_value,
    field_type,
    make_typed,
    plain,
)
from hms.errors.catalogue import FieldError, MessageFormatError

Field = str | int
"""A field's name or key."""

MAGIC = b"FB\x01"
"""How an encoded buffer begins; the last byte is the format's version."""

_INFERRED = 0
"""In an encoded buffer: the type follows from the value."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[str | int, bytes, list[Any]]]).decode


class FieldBuffer(MutableMapping[Field, Any]):
    """A mapping of fields to their occurrences.

    `fb["A"] = "1"` sets one occurrence, `fb["A"] = ["1", "2"]` two; `fb["A"]` is a new list of
    them: change the buffer by `add`, `insert`, `replace` and `remove`. len() counts the fields.
    """

    __slots__ = ("_fields", "_table")

    def __init__(
        self, fields: Mapping[Any, Any] | None = None, table: FieldTable = FIELDS, **named: Any
    ) -> None:
        self._fields: dict[Field, list[FieldValue]] = {}
        self._table = table
        self.update(fields or {}, **named)

    def __getitem__(self, field: Field) -> list[FieldValue]:
        return list(self._occurrences(field))

    def __setitem__(self, field: Field, value: object) -> None:
        values = value if isinstance(value, list | tuple) else [value]
        if not values:
            raise field_error(field, "an empty list; delete the field instead", FBENOENT)
        checked = [self._checked(field, each) for each in values]
        self._fields[self._slot(field)] = checked

    def __delitem__(self, field: Field) -> None:
        self._occurrences(field)
        del self._fields[self._slot(field)]

    def __iter__(self) -> Iterator[Field]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __contains__(self, field: object) -> bool:
        return isinstance(field, str | int) and self._slot(field) in self._fields

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FieldBuffer):
            return NotImplemented
        return self._fields == other._fields

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"FieldBuffer({self._fields!r})"

    def get(self, field: Field, default: Any = None) -> Any:
        """The occurrences of a field as a list, or the default."""
        found = self._fields.get(self._slot(field))
        return default if found is None else list(found)

    def first(self, field: Field, default: Any = None) -> Any:
        """The first occurrence of a field, or the default."""
        found = self._fields.get(self._slot(field))
        return default if found is None else found[0]

    def nth(self, field: Field, nth: int = 0) -> FieldValue:
        """An occurrence, counted from 0; FieldError FBENOENT when there is none."""
        return self._occurrences(field, nth)[nth]

    def get_as(self, field: Field, kind: int, nth: int = 0) -> FieldValue:
        """An occurrence converted to a type; PropertyConversionError or PropertyRangeError."""
        return convert(self.nth(field, nth), field_type(kind, str(field)), str(field))

    def add(self, field: Field, *values: object) -> None:
        """More occurrences behind those that are there."""
        checked = [self._checked(field, each) for each in values]
        if checked:
            self._fields.setdefault(self._slot(field), []).extend(checked)

    def add_as(self, field: Field, value: object, kind: int) -> None:
        """One more occurrence, given as `kind` and converted to the field's own type."""
        given = make_typed(kind, value, str(field))
        own = self.type_of(field)
        self.add(field, given if own is None else convert(given, own, str(field)))

    def insert(self, field: Field, nth: int, value: object) -> None:
        """A new occurrence at place nth; those from there on move up by one."""
        checked = self._checked(field, value)
        found = self._fields.get(self._slot(field), [])
        if not 0 <= nth <= len(found):
            raise self._absent(field, nth)
        self._fields.setdefault(self._slot(field), found).insert(nth, checked)

    def replace(self, field: Field, nth: int, value: object) -> None:
        """Another value for occurrence nth."""
        checked = self._checked(field, value)
        self._occurrences(field, nth)[nth] = checked

    def remove(self, field: Field, nth: int = 0) -> None:
        """Delete occurrence nth; those behind it move down by one."""
        found = self._occurrences(field, nth)
        del found[nth]
        if not found:
            del self._fields[self._slot(field)]

    def count(self, field: Field | None = None) -> int:
        """How many occurrences a field has, or all fields together."""
        if field is None:
            return sum(map(len, self._fields.values()))
        return len(self._fields.get(self._slot(field), ()))

    def occurrences(self) -> Iterator[tuple[Field, int, FieldValue]]:
        """Field, number and value of every occurrence."""
        for field, values in self._fields.items():
            for nth, value in enumerate(values):
                yield field, nth, value

    @property
    def table(self) -> FieldTable:
        """The field table that names and keys are looked up in."""
        return self._table

    def type_of(self, field: Field) -> FieldType | None:
        """The type that the field's key fixes; None for a name that no table knows."""
        known = self._table.find(field)
        if known is not None:
            return known.type
        if isinstance(field, str):
            check_name(field)
            return None
        return _type_of_key(field)

    def copy(self) -> "FieldBuffer":
        """Another buffer with the same fields."""
        other = FieldBuffer(table=self._table)
        other._fields = {field: list(values) for field, values in self._fields.items()}
        return other

    def encode(self) -> bytes:
        """The buffer as bytes: MAGIC, then msgpack [[field, types, values], …]."""
        return MAGIC + _encode(
            [
                (field, bytes(map(_code_of, values)), list(map(plain, values)))
                for field, values in self._fields.items()
            ]
        )

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview, table: FieldTable = FIELDS) -> Self:
        """A buffer from what encode() made; MessageFormatError for anything else."""
        view = memoryview(data)
        if view[: len(MAGIC)] != MAGIC:
            raise MessageFormatError(detail="it does not begin as a field buffer of version 1")
        buffer = cls(table=table)
        try:
            for field, types, values in _decode(view[len(MAGIC) :]):
                buffer._restore(field, types, values)
        except Exception as fault:  # msgspec also raises RecursionError and UnicodeDecodeError
            raise MessageFormatError(detail=f"its fields: {fault}") from fault
        return buffer

    def _restore(self, field: Field, types: bytes, values: list[Any]) -> None:
        if not values or len(types) != len(values) or field in self:
            raise field_error(field, "is there twice, or without a type for each value", FBEBADFB)
        self.add(field, *map(_restored, types, values))

    def _slot(self, field: Field) -> Field:
        """Where a field is kept: under the name or the key it was first set by."""
        if field in self._fields:
            return field
        known = self._table.find(field)
        if known is None:
            return field
        return known.key if known.key in self._fields else known.name

    def _occurrences(self, field: Field, nth: int = 0) -> list[FieldValue]:
        found = self._fields.get(self._slot(field))
        if found is None or not 0 <= nth < len(found):
            raise self._absent(field, nth)
        return found

    def _checked(self, field: Field, value: object) -> FieldValue:
        kind = self.type_of(field)
        if kind is None:
            return check_value(value, str(field))
        return make_typed(kind, value, str(field))

    @staticmethod
    def _absent(field: Field, nth: int) -> FieldError:
        detail = f"has no occurrence {nth}"
        return FieldNotFound(field=field, detail=detail, fberror=FBENOENT)


class FieldNotFound(FieldError, KeyError):  # noqa: N818 - named as its sisters
    """HMS-2010 for a field that is not there, so that a mapping's users can catch KeyError."""


def _type_of_key(key: int) -> FieldType:
    if isinstance(key, int) and key != BADFLDKEY and key & NUMBER_MAX >= 1:
        kind = key >> NUMBER_BITS
        if FieldType.CHAR <= kind <= FieldType.CARRAY:
            return FieldType(kind)
    raise field_error(key, "is no field key", FBEBADFLD)


def _code_of(value: FieldValue) -> int:
    kind = type(value)
    return _INFERRED if kind in PLAIN_TYPES else CODES[kind]


def _restored(code: int, value: Any) -> FieldValue:
    return check_value(value) if code == _INFERRED else make_typed(code, value)
