"""Arguments: what an application gives is checked where it gives it.

Each function returns the value, or raises InvalidArgument with the name of the argument. Without
that a wrong value would reach the wire, and the node would end the connection for it, or an
application would see an error of Python's that no `except HmsError` catches.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hms.errors.catalogue import InvalidArgument

NAME_CHARACTERS_MAX = 255
TEXT_CHARACTERS_MAX = 16_384
"""A name, and a selector or topic string, as the wire takes them."""
SECONDS_MAX = 100 * 366 * 86_400
"""A hundred years."""
_SHOWN = 80
_COMMAND_CHARACTERS_MAX = 60_000
_LONG_MAX = (1 << 63) - 1


def check_text(what: str, value: Any, most: int = NAME_CHARACTERS_MAX, *, least: int = 0) -> str:
    """A text of `least` to `most` characters that UTF-8 can hold."""
    if not isinstance(value, str):
        raise InvalidArgument(what=what, detail=f"a {type(value).__name__} is not a text")
    if not least <= len(value) <= most:
        detail = f"it has {len(value)} characters; {least} to {most} are allowed"
        raise InvalidArgument(what=what, detail=detail)
    try:
        value.encode()
    except UnicodeEncodeError as fault:
        detail = f"character {fault.start} is half of a surrogate pair, which no text may hold"
        raise InvalidArgument(what=what, detail=detail) from fault
    return value


def check_maybe_text(what: str, value: Any, most: int = NAME_CHARACTERS_MAX) -> str:
    """A text, or None for an empty one."""
    return "" if value is None else check_text(what, value, most)


def check_flag(what: str, value: Any) -> bool:
    """True or False, and nothing that Python merely takes for one of them."""
    if value is True or value is False:
        return bool(value)
    raise _refused(what, value, "True or False")


def check_number(what: str, value: Any, least: int, most: int) -> int:
    """A whole number in these bounds."""
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return int(value)
    raise _refused(what, value, f"a whole number from {least:,} to {most:,}")


def check_seconds(what: str, value: Any, least: float = 0, most: float = SECONDS_MAX) -> float:
    """A number of seconds in these bounds."""
    if isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most:
        return value
    raise _refused(what, value, f"a number of seconds from {least:,} to {most:,}")


def check_patience(what: str, value: Any) -> float | None:
    """How long to wait: None for no limit; a time below 0 is one that is over already."""
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and value <= SECONDS_MAX:
        return value
    raise _refused(what, value, "a number of seconds, or None to wait for ever")


def check_word(what: str, value: Any, words: Sequence[str]) -> str:
    """One of these words."""
    if isinstance(value, str) and value in words:
        return value
    raise _refused(what, value, f"one of {', '.join(words)}")


def check_function(what: str, value: Any) -> Callable[..., Any] | None:
    """Something that can be called, or None."""
    if value is None or callable(value):
        return value  # type: ignore[no-any-return]  # that is all that is asked of it
    raise _refused(what, value, "a function")


def check_mapping(what: str, value: Any) -> Mapping[Any, Any]:
    """Names with values."""
    if isinstance(value, Mapping):
        return value
    raise _refused(what, value, "a mapping of names to values")


def check_values(what: str, value: Any) -> None:
    """None, or plain values by name, as an operator's command has them."""
    for name, item in check_mapping(what, {} if value is None else value).items():
        key = f"{what}[{shown(name)}]"
        check_text(key, name)
        if isinstance(item, str):
            check_text(key, item, _COMMAND_CHARACTERS_MAX)
        elif isinstance(item, int):
            check_number(key, int(item), -_LONG_MAX - 1, _LONG_MAX)
        elif item is not None and not isinstance(item, float):
            raise _refused(key, item, "a text, a number, True, False or None")


def _refused(what: str, value: Any, wanted: str) -> InvalidArgument:
    return InvalidArgument(what=what, detail=f"{shown(value)} is not {wanted}")


def shortened(name: Any) -> str:
    """A name in an error, as it is but not too long."""
    text = name if isinstance(name, str) else shown(name)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def shown(value: Any) -> str:
    """A value in an error: not too long, and whatever its own repr() does."""
    try:
        text = ascii(value)
    except Exception:  # noqa: BLE001 - a repr() of the application's
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
