"""What a section of hms.conf is: a Struct whose fields are its keys.

A field says all there is to a key: its type and limits, its default, and below it why it is there.
From it come the check of the file, hms.conf as `hms config init` writes it, the tables of
docs/reference/configuration.md (scripts/generate-configuration makes both), the attribute of the
loaded configuration and what the engine is told. Only a name and another entry are no keys.
"""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from msgspec import NODEFAULT, Meta, Struct
from msgspec.structs import FieldInfo, fields

from hms.boot import kinds
from hms.boot.kinds import Reader

__all__ = [
    "ABSENT",
    "DAY_S",
    "YEAR_S",
    "Entry",
    "Key",
    "Named",
    "Section",
    "Size",
    "engine_settings",
    "key",
    "reads",
]

ABSENT = "not available in this version"

DAY_S, YEAR_S = 86_400, 366 * 86_400


class Entry(Struct, frozen=True, kw_only=True):
    """A section as it was loaded. Attributes are the file's keys in lower case; sizes are in bytes,
    paths absolute."""


class Named(Entry, frozen=True, kw_only=True):
    """A section of which there is one for each name."""

    name: str


def key(*, otherwise: str = "", example: Any = None, engine: str = "") -> Meta:
    """What else there is to say of a key.

    otherwise: what holds when the key is absent and has no default; example: what hms.conf shows
    then; engine: the engine's setting with its value, in milliseconds where the key has seconds.
    """
    extra = {"otherwise": otherwise, "example": example, "engine": engine}
    return Meta(extra={word: told for word, told in extra.items() if told})


def reads(reader: Reader) -> Meta:
    """How a value is read where its type alone does not tell."""
    return Meta(extra={"read": reader})


Size = Annotated[int, Meta(extra={"unit": "bytes"})]


@dataclass(frozen=True, slots=True)
class Key:
    """One key, as its field describes it; default None: required, or `otherwise` tells."""

    name: str
    attribute: str
    read: Reader
    takes: str
    default: Any
    is_required: bool
    is_size: bool
    otherwise: str
    example: Any
    engine: str
    entry: type[Entry]
    shared_why: str

    @property
    def why(self) -> str:
        """Why it is there: the text below the field, or that of a type which several keys share."""
        text = self.shared_why or _texts(self.entry).get(self.attribute, "")
        return " ".join(text.split())  # a comment and a table's cell are one line


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """A kind of section, such as [node.NAME].

    sample: its header in hms.conf, with a # in front when the section is only shown there; shown:
    the keys that are set there; later: words that are refused with a reason; read_name: which names
    it takes.
    """

    path: tuple[str, ...]
    entry: type[Entry]
    sample: str
    shown: tuple[str, ...] = ()
    later: dict[str, str] = field(default_factory=dict)
    read_name: Reader = kinds.name

    @property
    def why(self) -> str:
        """What it is for."""
        return self.entry.__doc__ or ""

    @property
    def keys(self) -> tuple[Key, ...]:
        """Its keys, in order."""
        return _keys(self.entry)

    @property
    def is_named(self) -> bool:
        """Whether there can be several."""
        return issubclass(self.entry, Named)

    @property
    def title(self) -> str:
        """How the section's header is written."""
        return f"[{'.'.join((*self.path, 'NAME') if self.is_named else self.path)}]"

    def key(self, name: str) -> Key | None:
        """The key of that name."""
        return next((key for key in self.keys if key.name == name), None)


def engine_settings(entry: Entry) -> dict[str, Any]:
    """What an entry tells the engine, by the engine's names; its own defaults hold for None."""
    told: dict[str, Any] = {}
    for one in _keys(type(entry)):
        value = getattr(entry, one.attribute)
        if one.engine and value is not None:
            told[one.engine] = round(value * 1000) if one.name.endswith("_s") else value
    return told


@cache
def _keys(entry: type[Entry]) -> tuple[Key, ...]:
    names = Named.__struct_fields__ if issubclass(entry, Named) else ()
    every = [(one, *_annotations(one.type)) for one in fields(entry) if one.name not in names]
    return tuple(_key(entry, *each) for each in every if not _is_entry(each[1]))


@cache
def _texts(entry: type[Entry]) -> dict[str, str]:
    """The text below each field, read from the source: Python keeps none of it."""
    found: dict[str, str] = {}
    for kind in filter(_is_entry, reversed(entry.__mro__)):
        try:
            (made,) = ast.parse(inspect.getsource(kind)).body
        except OSError:  # installed without its source
            return {}
        assert isinstance(made, ast.ClassDef)
        for one, text in pairwise(made.body):
            if isinstance(one, ast.AnnAssign) and isinstance(text, ast.Expr):
                found[ast.unparse(one.target)] = ast.literal_eval(text.value)
    return found


def _is_entry(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Entry)


def _key(entry: type[Entry], one: FieldInfo, kind: Any, said: dict[str, Any]) -> Key:
    default = None if one.default is NODEFAULT else one.default
    if kind is float and default is not None:
        default = float(default)
    otherwise = said.get("otherwise", "")
    read = said.get("read") or _reader(kind, said)
    return Key(
        one.encode_name,
        one.name,
        read,
        _limits(kind, said) or (read.__doc__ or "").rstrip("."),
        default,
        is_required=default is None and not otherwise,
        is_size=said.get("unit") == "bytes",
        otherwise=otherwise,
        example=said.get("example"),
        engine=said.get("engine", ""),
        entry=entry,
        shared_why=said.get("why", ""),
    )


def _annotations(kind: Any) -> tuple[Any, dict[str, Any]]:
    """A field's type without None, and all that its annotations say."""
    said: dict[str, Any] = {}
    for part in _parts(kind):
        if not isinstance(part, Meta):
            kind = part
            continue
        said |= part.extra or {}
        for word, told in (("why", part.description), ("low", part.ge), ("high", part.le)):
            said |= {} if told is None else {word: told}
        said |= {"multiple": part.multiple_of} if part.multiple_of else {}
    return kind, said


def _parts(kind: Any) -> Iterator[Any]:
    """A type and its annotations, also of the one type beside None."""
    if hasattr(kind, "__metadata__"):
        yield from _parts(kind.__origin__)
        yield from kind.__metadata__
    elif type(None) in get_args(kind):
        yield from _parts(next(one for one in get_args(kind) if one is not type(None)))
    else:
        yield kind


def _words(kind: Any) -> tuple[str, ...]:
    """The words to choose from, of a Literal or an enumeration; none of any other type."""
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return tuple(str(word) for word in kind)
    return get_args(kind) if get_origin(kind) is Literal else ()


def _limits(kind: Any, said: dict[str, Any]) -> str:
    """What a value may be, where that is a choice or a range; all numbers with decimals are
    seconds."""
    if words := _words(kind):
        return kinds.either(words)
    if "low" not in said:
        return ""
    spell = kinds.spell_size if said.get("unit") == "bytes" else str
    unit = " s" if kind is float else ""
    multiple = f", a multiple of {said['multiple']}" if "multiple" in said else ""
    return f"{spell(said['low'])} to {spell(said['high'])}{unit}{multiple}"


def _reader(kind: Any, said: dict[str, Any]) -> Reader:
    if words := _words(kind):
        choose = kinds.choice(*words)
        return choose if get_origin(kind) is Literal else lambda value: kind(choose(value))
    if said.get("unit") == "bytes":
        return kinds.size(said["low"], said["high"], said.get("multiple", 1))
    if kind is int:
        return kinds.integer(said["low"], said["high"])
    if kind is float:
        return kinds.number(said["low"], said["high"])
    plain: dict[Any, Reader] = {
        bool: kinds.boolean,
        Path: kinds.directory,
        tuple[Path, ...]: kinds.directories,
    }
    return plain[kind]
