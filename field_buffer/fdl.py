"""Field tables: names, numbers and types of fields, read from FDL text.

    # comment
    *base 500
    # name       number  type    flags  comments
    ACCOUNT_ID   1       long    -      the account
    BALANCE      2       double

A field's key is (type << 26) + number, the number counted from `*base`. The tables that fdl_load()
reads are known to every FieldBuffer of the process.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from field_buffer.names import is_name
from field_buffer.types import FieldType
from hms.errors.catalogue import FieldError

BADFLDKEY = 0
NUMBER_BITS = 26
NUMBER_MAX = (1 << NUMBER_BITS) - 1
TYPE_NAMES = {
    kind.name.lower(): kind for kind in FieldType if kind is not FieldType.BOOLEAN
}  # as FDL writes them

FBEBADFB, FBEINVAL, FBELIMIT, FBENOENT, FBEOS, FBEBADFLD, FBEPROTO = range(3, 10)
FBENOSPACE, FBEMALLOC, FBESYSTEM, FBETYPE, FBEMATCH, FBEBADSTRUCT, FBESETVER = range(10, 17)

_COLUMNS = 3


@dataclass(frozen=True, slots=True)
class FieldDefinition:
    """One line of a field table."""

    name: str
    key: int

    @property
    def type(self) -> FieldType:
        """The type that the key holds."""
        return FieldType(self.key >> NUMBER_BITS)


class FieldTable:
    """Fields by name and by key."""

    def __init__(self) -> None:
        self._by_name: dict[str, FieldDefinition] = {}
        self._by_key: dict[int, FieldDefinition] = {}

    def add(self, definition: FieldDefinition) -> None:
        """Take a definition; FieldError FBEMATCH when name or key already mean something else."""
        known = self.find(definition.name) or self.find(definition.key)
        if known is not None and known != definition:
            detail = f"is already defined as {known.name}, key {known.key}"
            raise field_error(definition.name, detail, FBEMATCH)
        self._by_name[definition.name] = definition
        self._by_key[definition.key] = definition

    def find(self, field: str | int) -> FieldDefinition | None:
        """The definition of a name or key, if there is one."""
        return self._by_name.get(field) if isinstance(field, str) else self._by_key.get(field)

    def copy(self) -> "FieldTable":
        """Another table with the same definitions."""
        other = FieldTable()
        other._by_name.update(self._by_name)
        other._by_key.update(self._by_key)
        return other

    def clear(self) -> None:
        """Forget everything."""
        self._by_name.clear()
        self._by_key.clear()

    def __len__(self) -> int:
        return len(self._by_name)


FIELDS = FieldTable()
"""The process's field table."""


def make_key(kind: int, number: int) -> int:
    """(type << 26) + number; FieldError FBETYPE or FBEINVAL."""
    if kind not in range(FieldType.CHAR, FieldType.CARRAY + 1):
        raise field_error(number, f"has no type {kind}; 1 (char) to 8 (carray) exist", FBETYPE)
    if not 1 <= number <= NUMBER_MAX:
        raise field_error(number, f"is no field number; 1 to {NUMBER_MAX} are", FBEINVAL)
    return (kind << NUMBER_BITS) + number


def fdl_load(path: str | os.PathLike[str], table: FieldTable = FIELDS) -> list[FieldDefinition]:
    """Read an FDL text file into the field table, all of it or nothing.

    Raises FieldError with file and line (FBEBADFLD, FBEINVAL, FBETYPE, FBEMATCH), FBEOS when the
    file cannot be read.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise field_error(str(path), f"cannot be read: {fault}", FBEOS) from fault
    definitions = parse_fdl(text, str(path), table.copy())
    for definition in definitions:
        table.add(definition)
    return definitions


def parse_fdl(text: str, source: str, table: FieldTable | None = None) -> list[FieldDefinition]:
    """The definitions in an FDL text, checked against each other and against the table."""
    seen = FieldTable() if table is None else table
    base, definitions = 0, []
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.split("#", 1)[0].split()
        if not words or words[0].startswith("$"):  # a $ line is meant for the C header
            continue
        where = f"{source}:{number}"
        if words[0].startswith("*"):
            base = _base(words, where)
            continue
        definition = _definition(words, base, where)
        _take(definition, seen, where)
        definitions.append(definition)
    return definitions


def field_error(field: str | int, detail: str, fberror: int) -> FieldError:
    """A FieldError with its fberror number."""
    return FieldError(field=field, detail=detail, fberror=fberror)


def _base(words: list[str], where: str) -> int:
    if words[0] != "*base" or len(words) < 2 or not words[1].isascii() or not words[1].isdigit():  # noqa: PLR2004
        raise field_error(words[0], f"{where}: expected '*base NUMBER'", FBEINVAL)
    return _whole(words[1])


def _definition(words: list[str], base: int, where: str) -> FieldDefinition:
    if len(words) < _COLUMNS:
        raise field_error(words[0], f"{where}: expected name, number and type", FBEINVAL)
    name, number, kind = words[:_COLUMNS]
    if not is_name(name):
        raise field_error(name, f"{where}: is no field name", FBEBADFLD)
    if not (number.isascii() and number.isdigit()):
        raise field_error(name, f"{where}: {number!r} is no number", FBEINVAL)
    if kind not in TYPE_NAMES:
        known = ", ".join(TYPE_NAMES)
        raise field_error(name, f"{where}: there is no type {kind!r}; there are {known}", FBETYPE)
    total = base + _whole(number)
    if not 1 <= total <= NUMBER_MAX:
        raise field_error(name, f"{where}: its number is not in 1 to {NUMBER_MAX}", FBEINVAL)
    return FieldDefinition(name, make_key(TYPE_NAMES[kind], total))


def _take(definition: FieldDefinition, seen: FieldTable, where: str) -> None:
    try:
        seen.add(definition)
    except FieldError as fault:
        raise field_error(
            definition.name, f"{where}: {fault.fields['detail']}", FBEMATCH
        ) from fault


def _whole(digits: str) -> int:
    """The number, or one above every limit: Python refuses to read thousands of digits."""
    return int(digits) if len(digits) <= len(str(NUMBER_MAX)) else NUMBER_MAX + 1
