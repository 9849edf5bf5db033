"""The fb functions of Tmax, over FieldBuffer: its names, argument order and numbers.

Lengths and output pointers are gone: values are returned. What C reports by -1 and `fberror` is
raised as FieldError with the attribute `.fberror`; a value that does not fit raises
PropertyRangeError or PropertyTypeError, a text that is no number PropertyConversionError, with the
attribute as well: FBEINVAL and FBETYPE. A field is a key or a name.
"""

import functools
import sys
from collections.abc import Callable, Iterable
from typing import ParamSpec, TextIO, TypeVar

from field_buffer.buffer import Field, FieldBuffer
from field_buffer.fdl import (
    FBEBADFB,
    FBEBADFLD,
    FBEINVAL,
    FBETYPE,
    FIELDS,
    NUMBER_BITS,
    NUMBER_MAX,
    field_error,
    make_key,
)
from field_buffer.types import FieldType, FieldValue
from hms.errors.catalogue import (
    PropertyConversionError,
    PropertyRangeError,
    PropertyTypeError,
)

FBMOVE, FBCOPY, FBCOMP, FBCONCAT, FBJOIN, FBOJOIN, FBUPDATE = range(1, 8)

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _numbered(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Give what is wrong with a value its fberror."""

    @functools.wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except (PropertyTypeError, PropertyConversionError) as error:
            error.fields["fberror"] = FBETYPE
            raise
        except PropertyRangeError as error:
            error.fields["fberror"] = FBEINVAL
            raise

    return run


@_numbered
def fbput(fb: FieldBuffer, field: Field, value: object) -> None:
    """Add an occurrence."""
    _buffer(fb).add(field, value)


@_numbered
def fbputt(fb: FieldBuffer, field: Field, value: object, type: int) -> None:  # noqa: A002
    """Add an occurrence given as `type`, converted to the field's own type."""
    _buffer(fb).add_as(field, value, type)


def fbget(fb: FieldBuffer, field: Field, nth: int = 0) -> FieldValue:
    """An occurrence, the first unless told."""
    return _buffer(fb).nth(field, nth)


@_numbered
def fbgetvalt(fb: FieldBuffer, field: Field, nth: int, type: int) -> FieldValue:  # noqa: A002
    """An occurrence converted to a type."""
    return _buffer(fb).get_as(field, type, nth)


@_numbered
def fbgetvals(fb: FieldBuffer, field: Field, nth: int = 0) -> str:
    """An occurrence as text."""
    return str(fbgetvalt(fb, field, nth, FieldType.STRING))


@_numbered
def fbgetvali(fb: FieldBuffer, field: Field, nth: int = 0) -> int:
    """An occurrence as an int of 32 bits."""
    return int(fbgetvalt(fb, field, nth, FieldType.INT))


@_numbered
def fbinsert(fb: FieldBuffer, field: Field, nth: int, value: object) -> None:
    """Insert an occurrence at place nth, the others move up; FBENOENT past the end."""
    _buffer(fb).insert(field, nth, value)


@_numbered
def fbupdate(fb: FieldBuffer, field: Field, nth: int, value: object) -> None:
    """Change occurrence nth; FBENOENT when there is none."""
    _buffer(fb).replace(field, nth, value)


def fbdelete(fb: FieldBuffer, field: Field, nth: int = 0) -> None:
    """Delete occurrence nth, the others move down; FBENOENT when there is none."""
    _buffer(fb).remove(field, nth)


def fbdelall(fb: FieldBuffer, field: Field) -> None:
    """Delete every occurrence of a field; FBENOENT when there is none."""
    del _buffer(fb)[field]


def fbkeyoccur(fb: FieldBuffer, field: Field) -> int:
    """How many occurrences a field has."""
    return _buffer(fb).count(field)


def fbispres(fb: FieldBuffer, field: Field, nth: int = 0) -> bool:
    """Whether occurrence nth is there."""
    return 0 <= nth < _buffer(fb).count(field)


def fbfldcount(fb: FieldBuffer) -> int:
    """How many occurrences all fields have together."""
    return _buffer(fb).count()


def fbget_fldkey(name: str) -> int:
    """The key of a field's name; FBEBADFLD when no loaded table has it."""
    known = FIELDS.find(name)
    if known is None:
        raise field_error(name, "is in no loaded field table", FBEBADFLD)
    return known.key


def fbget_fldname(key: int) -> str:
    """The name of a field's key; FBEBADFLD when no loaded table has it."""
    known = FIELDS.find(key)
    if known is None:
        raise field_error(key, "is in no loaded field table", FBEBADFLD)
    return known.name


def fbget_fldtype(key: int) -> int:
    """The type that a key holds, 1 (char) to 8 (carray)."""
    kind = key >> NUMBER_BITS
    make_key(kind, key & NUMBER_MAX)
    return kind


def fbget_strfldtype(key: int) -> str:
    """The type that a key holds, as FDL writes it."""
    return FieldType(fbget_fldtype(key)).name.lower()


def fbget_fldno(key: int) -> int:
    """The field's number that a key holds."""
    fbget_fldtype(key)
    return key & NUMBER_MAX


def fbmake_fldkey(type: int, no: int) -> int:  # noqa: A002
    """The key of a type and a number: (type << 26) + number."""
    return make_key(type, no)


def fbbufop(dest: FieldBuffer, src: FieldBuffer, mode: int) -> int:
    """An operation on whole buffers; FBEINVAL for another mode.

    FBMOVE     dest becomes src, src becomes empty
    FBCOPY     dest becomes a copy of src
    FBCOMP     0 when both have the same fields and values, else -1 or 1; changes nothing
    FBCONCAT   src's occurrences go behind dest's
    FBJOIN     occurrences in both get src's value, those in dest only are deleted
    FBOJOIN    occurrences in both get src's value, the others of dest stay
    FBUPDATE   as FBOJOIN, and those in src only are added
    """
    if mode == FBCOMP:
        return _compare(_buffer(dest), _buffer(src))
    operation = _OPERATIONS.get(mode)
    if operation is None:
        raise field_error("(all)", f"there is no mode {mode} of fbbufop", FBEINVAL)
    _become(_buffer(dest), operation(dest, _buffer(src)))
    if mode == FBMOVE and src is not dest:
        src.clear()
    return 0


def fbbufop_proj(dest: FieldBuffer, src: FieldBuffer, fields: Iterable[Field]) -> None:
    """Make dest a copy of src with these fields only."""
    kept = src.copy()
    wanted = FieldBuffer(table=kept.table)
    for field in fields:
        if field in kept:
            wanted[field] = kept[field]
    _become(_buffer(dest), wanted)


def fbprint(fb: FieldBuffer, file: TextIO | None = None) -> None:
    """Write one line per occurrence: the field, a tab, the value; what is not text in hex."""
    out = sys.stdout if file is None else file
    for field, _, value in _buffer(fb).occurrences():
        name = FIELDS.find(field)
        out.write(f"{field if name is None else name.name}\t{_printable(value)}\n")


def _buffer(fb: FieldBuffer) -> FieldBuffer:
    if not isinstance(fb, FieldBuffer):
        raise field_error("(all)", f"a {type(fb).__name__} is no field buffer", FBEBADFB)
    return fb


def _become(dest: FieldBuffer, result: FieldBuffer) -> None:
    """Replace everything in dest; a value that dest's table refuses leaves it as it was."""
    built = FieldBuffer(result, table=dest.table)
    dest.clear()
    dest.update(built)


def _copied(_: FieldBuffer, src: FieldBuffer) -> FieldBuffer:
    return src.copy()


def _concatenated(dest: FieldBuffer, src: FieldBuffer) -> FieldBuffer:
    result = dest.copy()
    for field, values in src.copy().items():
        result.add(field, *values)
    return result


def _joined(dest: FieldBuffer, src: FieldBuffer) -> FieldBuffer:
    result = FieldBuffer(table=dest.table)
    for field in dest:
        values = src.get(field, [])[: dest.count(field)]
        if values:
            result[field] = values
    return result


def _outer_joined(dest: FieldBuffer, src: FieldBuffer) -> FieldBuffer:
    result = dest.copy()
    for field, nth, value in _joined(dest, src).occurrences():
        result.replace(field, nth, value)
    return result


def _updated(dest: FieldBuffer, src: FieldBuffer) -> FieldBuffer:
    result = dest.copy()
    for field, values in src.items():
        result[field] = values + dest.get(field, [])[len(values) :]
    return result


_OPERATIONS: dict[int, Callable[[FieldBuffer, FieldBuffer], FieldBuffer]] = {
    FBMOVE: _copied,
    FBCOPY: _copied,
    FBCONCAT: _concatenated,
    FBJOIN: _joined,
    FBOJOIN: _outer_joined,
    FBUPDATE: _updated,
}


def _compare(dest: FieldBuffer, src: FieldBuffer) -> int:
    if dest == src:
        return 0
    first, second = (
        sorted(f"{field}\0{nth:09}\0{value!r}" for field, nth, value in fb.occurrences())
        for fb in (dest, src)
    )
    return -1 if first < second else 1


def _printable(value: FieldValue) -> str:
    if isinstance(value, bytes):
        return "".join(chr(b) if 32 <= b < 127 and b != 92 else f"\\x{b:02x}" for b in value)  # noqa: PLR2004 - printable ASCII
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in str(value))
