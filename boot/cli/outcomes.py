"""hms outcome: what became of a send or commit in doubt."""

import click

from hms.boot.cli.target import Target, target_options

__all__ = ["outcome"]


@click.command()
@target_options
@click.argument("token")
def outcome(target: Target, token: str) -> None:
    """Say for good what became of the send or commit that TOKEN names: STORED, WITHDRAWN,
    COMMITTED, ROLLED_BACK or FORGOTTEN. What the node has not is withdrawn, so that it never comes.
    The token is that of a SendInDoubt or CommitInDoubt."""
    with target.connection() as connection:
        found = connection.outcome(token)
    said = {"outcome": str(found.state), "message_ids": list(found.message_ids)}
    target.say(" ".join([found.state, *found.message_ids]), said)
