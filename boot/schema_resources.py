"""The keys of [rm.NAME]: databases that take part in transactions."""

from hms.boot import database_kinds, kinds, kinds_topics
from hms.boot.keys import Key, Section

__all__ = ["RESOURCE"]

RESOURCE = Section(
    ("rm",),
    "A resource manager: a database whose work can be part of a global transaction.",
    (
        Key(
            "kind",
            kinds.choice("postgresql", "mariadb", "sqlite"),
            None,
            "What it is; mariadb is MySQL too.",
            is_required=True,
        ),
        Key(
            "open",
            database_kinds.open_string,
            None,
            "Where it is: postgresql://USER@HOST/NAME, mariadb://USER@HOST/NAME, sqlite:PATH.",
            is_required=True,
        ),
        Key(
            "password",
            database_kinds.secret,
            None,
            'Where its password is, never the password itself: "env:NAME" or "file:PATH".',
            otherwise="none",
        ),
        Key(
            "last_resource",
            kinds_topics.boolean,
            False,  # noqa: FBT003 - the file's own word
            "Accept one that cannot prepare (sqlite): a crash at its commit can leave it alone.",
        ),
    ),
)
