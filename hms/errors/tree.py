"""The one tree of errors that an application can catch.

    HmsError                         number, code (tperrno), symbol, fields, cure
    └── one family per X/Open or Tmax code, such as TpNoEntry (TPENOENT, also a LookupError)
        └── one class per catalogued error, such as DestinationNotFound (HMS-4001)

Numbers, texts and cures stand in errors.toml; catalogue.py is made from it. An error carries its
values as fields, so that it crosses the wire and a pickle unchanged.
"""

from typing import Any, ClassVar

FieldValue = str | int | float | bool | None

_CONTROLS = {
    code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"
}
"""A name that somebody else chose moves no cursor of the terminal where its error is read."""


class HmsError(Exception):
    """What every error of HMS is; `str(error)` says what was wrong and what to do.

    number: the catalogue's, 0 for the root; code: the X/Open or Tmax number (tperrno);
    symbol: its name; fields: the values that the text speaks of, readable as attributes too.
    """

    number: ClassVar[int] = 0
    code: ClassVar[int] = 12
    symbol: ClassVar[str] = "TPESYSTEM"
    text: ClassVar[str] = "{detail}"
    cure_text: ClassVar[str] = ""
    shell_text: ClassVar[str] = ""
    """The cure as the command line says it, where it is another one."""
    request: str = ""
    """Of one that a node refused: connection and number of the request, as in the node's log."""

    def __init__(self, **fields: FieldValue) -> None:
        self.fields = fields
        super().__init__(self.describe())

    @property
    def tperrno(self) -> int:
        """The number that gettperrno() tells for this error."""
        return self.code

    @property
    def cure(self) -> str:
        """What to do about it."""
        return self.cure_text.format_map(_Fields(self.fields))

    def describe(self, *, is_shell: bool = False) -> str:
        """The whole text: number, what was wrong, what to do. is_shell: the cure as the command
        line says it."""
        known = _Fields(self.fields)
        head = f"HMS-{self.number} " if self.number else ""
        said = self.text.format_map(known)
        cure = ((is_shell and self.shell_text) or self.cure_text).format_map(known)
        end = "" if said.endswith(".") else "."  # what another error said ends with its cure
        whole = f"{head}{said}{end} {cure}".rstrip() if cure else f"{head}{said}"
        return whole if whole.isprintable() else whole.translate(_CONTROLS)

    def __str__(self) -> str:
        return self.describe()

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__.get("fields", {})
        if name in fields:
            return fields[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.fields, self.request)


class _Fields(dict[str, FieldValue]):
    """Fields for formatting: one that is absent shows as a question mark instead of failing."""

    def __missing__(self, key: str) -> str:
        return "?"


def _rebuild(kind: type[HmsError], fields: dict[str, FieldValue], request: str = "") -> HmsError:
    error = kind(**fields)
    error.request = request
    return error
