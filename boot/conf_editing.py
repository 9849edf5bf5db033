"""Changes to hms.conf that keep every other line of it: keys of one node are set or taken out."""

import json
from collections.abc import Mapping
from typing import Any

from hms.boot.locate import Statement, statements

__all__ = ["set_node_keys"]


def set_node_keys(text: str, node: str, values: Mapping[str, Any]) -> str:
    """The file with these keys of [node.NAME]; None takes one out. What is new stands below the
    section's header."""
    lines = text.split("\n")
    found = {s.path[-1]: s for s in statements(text) if _is_of(s, node)}
    header = next(s for s in statements(text) if s.is_header and s.path == ("node", node))
    new = []
    for word, value in values.items():
        written = None if value is None else f"{word} = {json.dumps(value, ensure_ascii=False)}"
        known = found.get(word)
        if known is not None:
            kept = [] if written is None else [written]
            count = known.last_line - known.first_line + 1
            lines[known.first_line - 1 : known.last_line] = (kept + [_GONE] * count)[:count]
        elif written is not None:
            new.append(written)
    lines[header.last_line : header.last_line] = new
    return "\n".join(line for line in lines if line is not _GONE)


_GONE = "\0"


def _is_of(statement: Statement, node: str) -> bool:
    return not statement.is_header and statement.path[:-1] == ("node", node)
