"""Outcome requests: what became of a send or commit in doubt, for the holder of its token.

The token says whose it is; at a node that checks logins only the same user is answered, and users
that may operate the node. A refusal tells nothing: neither whose it is, nor whether it is one at
all.
"""

from collections.abc import Callable, Mapping

from hms.engine.effects import Effects, Reply
from hms.engine.engine import Engine
from hms.errors.catalogue import OutcomeElsewhere, TokenRefused
from hms.server.connection_registry import ConnectionRegistry
from hms.wire import structures as wire
from hms.wire.outcome_tokens import is_signed, read_token

__all__ = ["OutcomeRequests"]


class OutcomeRequests:
    """See the module."""

    def __init__(self, engine: Engine, registry: ConnectionRegistry) -> None:
        self._engine, self._registry = engine, registry
        self.handlers: Mapping[type, Callable[..., None]] = {wire.AskOutcome: self._ask}

    def _ask(
        self, connection: int, correlation: int, request: wire.AskOutcome, now_ms: int, fx: Effects
    ) -> None:
        engine = self._engine
        token = read_token(request.token)
        if token.log != engine.log:  # wherever it may be, the one who asks knows which log it says
            raise OutcomeElsewhere(node=self._registry.identity.node)
        is_genuine = is_signed(token, request.token, engine.token_secret)
        if not is_genuine or not self._registry.may_ask_for(connection, token.user):
            raise TokenRefused
        fx.out.append(Reply(connection, correlation, engine.outcome(token, now_ms, fx)))
