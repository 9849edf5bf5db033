"""Credentials: what a client proves itself with, once the node has asked, and never before."""

from collections.abc import Callable
from dataclasses import dataclass, field

from hms.client.core.arguments import check_flag, check_text
from hms.errors.catalogue import InsecureTransport, InvalidArgument, LoginNotChecked, LoginRequired
from hms.wire.structures import Auth, Challenge, Welcome

__all__ = ["SECRET_CHARACTERS_MAX", "Credentials"]

SECRET_CHARACTERS_MAX = 8192


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user with a password or a token; domain_password: of the whole domain, as tpstart has it.
    is_open_allowed: go on where nobody checks them."""

    user: str = ""
    password: str = field(default="", repr=False)
    token: str | Callable[[], str] = field(default="", repr=False)
    domain_password: str = field(default="", repr=False)
    is_open_allowed: bool = False

    def __post_init__(self) -> None:
        check_text("user", self.user)
        for what in ("password", "token", "domain_password"):
            if what != "token" or not callable(self.token):
                check_text(what, getattr(self, what), SECRET_CHARACTERS_MAX)
        check_flag("allow_unsecured", self.is_open_allowed)
        if self.password and self.token:
            raise InvalidArgument(what="token", detail="a password is given too; give one of them")
        if self.password and not self.user:
            raise InvalidArgument(what="password", detail="whose it is stands in user")

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """How it can prove itself; nothing for a client that brings only its key or process."""
        if self.password:
            return ("PASSWORD",)
        if self.token:
            return ("TOKEN",)
        return ("DOMAIN",) if self.domain_password else ()

    def answer(self, challenge: Challenge, address: str, *, is_private: bool) -> Auth:
        """The AUTH for a node that asks; InsecureTransport where others could read it."""
        (mechanism,) = self.mechanisms or ("",)
        if mechanism not in challenge.mechanisms:
            offered = ", ".join(challenge.mechanisms)
            raise LoginRequired(address=address, mechanisms=offered)
        if not is_private:
            raise InsecureTransport(address=address)
        response = (self.password or self.fresh_token() or "").encode()
        return Auth(mechanism, self.user, response, self.domain_password.encode())

    def fresh_token(self) -> str:
        """The token, of now where a function gives it."""
        if not callable(self.token):
            return self.token
        token = self.token()
        check_text("token", token, SECRET_CHARACTERS_MAX)
        return token

    def check_welcome(self, welcome: Welcome, address: str) -> None:
        """A client that gives a password expects a check: LoginNotChecked where there is none."""
        if self.mechanisms and not welcome.is_secured and not self.is_open_allowed:
            raise LoginNotChecked(address=address)
