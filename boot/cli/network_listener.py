"""What hms config secure --listen adds: an encrypted listener, its key, and the administrator's.

Each piece that is there is kept, so the same command once more changes nothing.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hms.boot.client_profiles import addresses_of, keeper_profile
from hms.boot.entries import Config, Node
from hms.boot.security_file import change_security, load_security
from hms.errors.catalogue import InvalidArgument, KeyFileError, LinkKeyError
from hms.server.links.keys import make_key_file, read_key_file
from hms.server.logins.document_changes import set_key
from hms.server.logins.security_document import SecurityDocument

__all__ = ["Network", "network_of"]

LISTENER = "clients"


class Network(NamedTuple):
    """A listener as it shall be. is_there: hms.conf has it; server_key: the key file of the node;
    key_file: of the user, the administrator, whose profile lies beside it."""

    listener: str
    address: str
    server_key: Path
    key_file: Path
    user: str
    is_there: bool

    def added_to(self, text: str) -> str:
        """hms.conf with the listener."""
        if self.is_there:
            return text
        key = f"{self.server_key.parent.name}/{self.server_key.name}"
        section = [
            f"[listener.{self.listener}]",
            f"address = {json.dumps(self.address)}",
            f"server_key_file = {json.dumps(key)}",
        ]
        return "\n".join([text.rstrip(), "", *section, ""])

    def make_keys(self) -> None:
        """The key files that are not there; KeyFileError."""
        for path in (self.server_key, self.key_file):
            if not path.exists():
                try:
                    make_key_file(path)
                except LinkKeyError as fault:
                    raise KeyFileError(
                        path=str(path), detail=str(fault.fields["detail"])
                    ) from fault

    @property
    def profile(self) -> Path:
        """The file of the administrator's profile, which is taken to another machine."""
        return self.key_file.with_suffix(".toml")

    def write_profile(self) -> None:
        """The same, where there is none yet."""
        values = {
            "addresses": addresses_of(self.address),
            "server_keys": [_public(self.server_key)],
            "key_file": self.key_file.name,
        }
        said = [f"Of the administrator {self.user}; {self.key_file.name} belongs beside it."]
        keeper_profile(self.profile, self.user, values, said)

    def public(self) -> str:
        """The key of the administrator."""
        return _public(self.key_file)

    def check_user(self, document: SecurityDocument) -> None:
        """InvalidArgument for a user that there is not."""
        if self.user not in document.user:
            detail = f"there is no user {self.user!r}; known: {', '.join(document.user)}"
            raise InvalidArgument(what="--user", detail=detail)

    def give_key(self, security: Path) -> None:
        """The administrator of a security file has it, too."""
        public = self.public()
        if public not in load_security(security).user[self.user].keys:
            change_security(
                security, lambda held: set_key(held, self.user, public, is_removed=False)
            )

    def described(self) -> dict[str, Any]:
        """For --json; server_key "" before there is one."""
        return {
            "listener": self.listener,
            "address": self.address,
            "server_key": _public(self.server_key) if self.server_key.exists() else "",
            "key_file": str(self.key_file),
            "profile": str(self.profile),
        }

    def told(self, *, is_dry: bool) -> Iterator[str]:
        """What there is, and the three next steps."""
        would = "would be" if is_dry else "is"
        yield f"listener {self.listener} {would} {self.address}, encrypted"
        yield f"key of the node: {self.server_key}; of {self.user}: {self.key_file}"
        yield f"client profile of {self.user}: {self.profile}"
        if is_dry:
            return
        yield "next: 1. hms boot, or hms down first when the node runs"
        yield f"      2. copy {self.profile.name} and {self.key_file.name} to the administrator's"
        yield f"         machine, and there: hms profile check {self.profile.name}"
        yield "      3. for each application: hms user add APP --role ROLE,"
        yield "         hms profile export APP --user APP --new-key"


def network_of(config: Config, node: Node, user: str, address: str) -> Network:
    """The listener at that address, there or to be made; InvalidArgument for one in its place."""
    folder = config.path.parent / "keys"
    if not address.startswith("tcp://"):
        raise InvalidArgument(what="--listen", detail=f"{address!r} is not tcp://HOST:PORT")
    known = {name: one for name, one in config.listeners.items() if name in node.listen}
    found = next((one for one in known.values() if one.address == address), None)
    at_name = config.listeners.get(LISTENER)
    if found is None and at_name is not None and at_name.address == address:
        found = at_name
    if found is None and at_name is not None:
        detail = (
            f"hms.conf has [listener.{LISTENER}] at {at_name.address}; change its address there"
        )
        raise InvalidArgument(what="--listen", detail=detail)
    name = LISTENER if found is None else found.name
    server_key = folder / f"{node.name}.server.key" if found is None else found.server_key_file
    return Network(name, address, server_key, folder / f"{user}.key", user, found is not None)


def _public(path: Path) -> str:
    try:
        return read_key_file(path).public.decode()
    except LinkKeyError as fault:
        raise KeyFileError(path=str(path), detail=str(fault.fields["detail"])) from fault
