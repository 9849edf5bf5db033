"""Defaults of members: what sessions, producers and consumers are given where a call says nothing.

They come from a profile of hms-client.toml. Only what a call leaves out is filled in, so a call
that gives a value that is also the built-in one has it.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

__all__ = ["with_defaults"]


_F = TypeVar("_F", bound=Callable[..., Any])
_SESSIONS = ("transacted", "xa", "asynchronous")


def with_defaults(part: str) -> Callable[[_F], _F]:
    """A method of something with `requests` takes what it is not given from the defaults of that
    part."""

    def decorated(method: _F) -> _F:
        @wraps(method)
        def made(self: Any, *args: Any, **given: Any) -> Any:
            own = self.requests.member_defaults.get(part)
            if own:
                given = _filled(part, own, args, given)
            return method(self, *args, **given)

        return made  # type: ignore[return-value]  # the same arguments, the same value

    return decorated


def _filled(
    part: str, own: Mapping[str, Any], args: tuple[Any, ...], given: dict[str, Any]
) -> dict[str, Any]:
    """What a kind of session or consumer does not take is not given to it."""
    if part == "session" and (args or any(given.get(kind) for kind in _SESSIONS)):
        return given
    if part == "consumer" and given.get("ordered"):
        own = {name: value for name, value in own.items() if name != "redelivery_delay_s"}
    return {**own, **given}
