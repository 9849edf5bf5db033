"""What a key and a section of hms.conf are, for the tables of the schema."""

from dataclasses import dataclass, field
from keyword import iskeyword
from typing import Any

from hms.boot.kinds import Reader

ABSENT = "not available in this version"


@dataclass(frozen=True, slots=True)
class Key:
    """One key. default is written as in the file; None means that `otherwise` tells what holds."""

    name: str
    read: Reader
    default: Any
    why: str
    otherwise: str = ""
    is_required: bool = False

    @property
    def attribute(self) -> str:
        """The name of the key's attribute in the loaded configuration."""
        word = self.name.lower()
        return f"{word}_" if iskeyword(word) else word


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """A kind of section, such as [node.NAME]."""

    path: tuple[str, ...]
    why: str
    keys: tuple[Key, ...]
    is_named: bool = True
    later: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """How the section's header is written."""
        return f"[{'.'.join((*self.path, 'NAME') if self.is_named else self.path)}]"

    def key(self, name: str) -> Key | None:
        """The key of that name."""
        return next((key for key in self.keys if key.name == name), None)
