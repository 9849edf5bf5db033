"""Names of fields and properties: 1 to 255 characters, a letter, _ or $ first."""

from functools import lru_cache

from hms.errors.catalogue import PropertyNameError

NAME_CHARACTERS_MAX = 255
_NAMES_REMEMBERED = 4096
_SHOWN = 80


def is_name(name: str) -> bool:
    """Whether a text is a name: a Java identifier, so that a selector can say it."""
    return 0 < len(name) <= NAME_CHARACTERS_MAX and name.replace("$", "_").isidentifier()


@lru_cache(_NAMES_REMEMBERED)
def check_name(name: str) -> str:
    """The name, or PropertyNameError."""
    if not isinstance(name, str):
        raise PropertyNameError(name=str(name), detail=f"it is a {type(name).__name__}, not a text")
    if not is_name(name):
        raise PropertyNameError(name=name[:_SHOWN], detail=_fault(name))
    return name


def _fault(name: str) -> str:
    if not name:
        return "it is empty"
    if len(name) > NAME_CHARACTERS_MAX:
        return f"it has {len(name)} characters"
    return "it has a character that a name cannot have"
