"""Variables of the node that hold its secrets: server processes do not inherit them.

What a service's module reads, or what it starts, could pass them on. A password of [rm.NAME] is for
the server processes, who open the database; it is no secret of the node's.
"""

from collections.abc import Iterable, Iterator

from hms.boot.entries import LETTERS, Config, Node, Server
from hms.server.logins.security_document import SecurityDocument

__all__ = ["has_secrets", "named_by_node", "named_by_policy", "withheld_from"]


def named_by_node(config: Config, node: Node) -> set[str]:
    """Of hms.conf."""
    named = [node.database_password, *(one.password for one in config.letter_handlers.values())]
    named += [config.arbiter.password] if config.arbiter is not None else []
    return {*_variables(named)} - {*_variables(one.password for one in config.resources.values())}


def has_secrets(config: Config, node: Node) -> bool:
    """Whether the memory of a node is nobody else's to read."""
    return node.security is not None or bool(named_by_node(config, node))


def named_by_policy(document: SecurityDocument) -> set[str]:
    """Of authenticators; a plug-in's option may name one, too."""
    named: list[object] = []
    for one in document.authenticator.values():
        named += [one.bind_password, *one.options.values()]
    return {*_variables(named)}


def withheld_from(server: Server, config: Config, secret: Iterable[str]) -> set[str]:
    """Of these variables those that the processes of a server do not get: it may list some, and who
    carries out a table of dead letters logs in by its own."""
    given = {*server.secrets}
    handler = config.letter_handlers.get(server.name.removeprefix(LETTERS))
    if handler is not None and server.name.startswith(LETTERS):
        given |= {*_variables([handler.password])}
    return {*secret} - given


def _variables(references: Iterable[object]) -> Iterator[str]:
    for reference in references:
        if isinstance(reference, str) and reference.startswith("env:"):
            yield reference.removeprefix("env:")
