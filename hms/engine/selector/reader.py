"""What the parser reads from: one token ahead, and how much of the limits is used up."""

from dataclasses import dataclass
from typing import Final

from hms.engine.selector.lexer import Token, read_tokens
from hms.engine.selector.operands import mismatch
from hms.errors.catalogue import SelectorSyntaxError


@dataclass(frozen=True, slots=True)
class SelectorLimits:
    """How large a selector may be.

    text_chars_max: its length; depth_max: how deep parentheses, NOT and signs are nested;
    terms_max: how many names and literals it has, those in the list of an IN among them;
    likes_max: how many LIKE, each of which may read a property of 64 KiB.
    may_mix: a boolean may be compared with a number, which is false, as older versions had it.
    """

    text_chars_max: int = 8192
    depth_max: int = 64
    terms_max: int = 1024
    likes_max: int = 64
    may_mix: bool = False


DEFAULT_LIMITS: Final = SelectorLimits()
KEPT_LIMITS: Final = SelectorLimits(likes_max=1024, may_mix=True)
"""Of selectors that a log or another node has."""


class Reader:
    """The tokens of one selector; every step that breaks a limit raises SelectorSyntaxError."""

    def __init__(self, text: str, limits: SelectorLimits) -> None:
        if len(text) > limits.text_chars_max:
            allowed = f"{limits.text_chars_max} characters (text_chars_max)"
            raise _over_limit(f"{len(text)} characters", limits.text_chars_max, allowed)
        self._tokens = read_tokens(text)
        self._limits = limits
        self._depth = 0
        self._terms = self._likes = 0
        self.token = next(self._tokens)

    def advance(self) -> Token:
        """The current token; the next one takes its place."""
        token = self.token
        self.token = next(self._tokens, token)
        return token

    def take_term(self) -> Token:
        """The current token as one of the operands that are counted."""
        self._terms += 1
        if self._terms > self._limits.terms_max:
            allowed = f"{self._limits.terms_max} operands (terms_max)"
            raise _over_limit(str(self.token), self.token.position, allowed)
        return self.advance()

    def count_like(self, position: int) -> None:
        """One more of the conditions that cost most."""
        self._likes += 1
        if self._likes > self._limits.likes_max:
            raise _over_limit("LIKE", position, f"{self._limits.likes_max} LIKE (likes_max)")

    def take_string(self, expected: str) -> str:
        """The value of the current token, which must be a string."""
        if self.token.kind != "string":
            raise self.unexpected(expected)
        return str(self.take_term().value)

    def expect(self, kind: str, expected: str) -> None:
        """Skip the current token, which must be of this kind."""
        if self.token.kind != kind:
            raise self.unexpected(expected)
        self.advance()

    def descend(self, opener: Token) -> None:
        """One level deeper; `ascend` goes back."""
        if self._depth == self._limits.depth_max:
            allowed = f"{self._limits.depth_max} nested levels (depth_max)"
            raise _over_limit(str(opener), opener.position, allowed)
        self._depth += 1

    def ascend(self) -> None:
        """One level up again."""
        self._depth -= 1

    def unexpected(self, expected: str) -> SelectorSyntaxError:
        """The error for a current token that cannot stand here."""
        return mismatch(str(self.token), self.token.position, expected)


def _over_limit(found: str, position: int, allowed: str) -> SelectorSyntaxError:
    return mismatch(found, position, f"at most {allowed}")
