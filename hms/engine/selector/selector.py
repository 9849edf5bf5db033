"""A message selector as its users see it: parsed and compiled once, then asked for each message."""

from collections.abc import Callable

from hms.engine.selector.closures import Properties
from hms.engine.selector.compiler import compile_selector
from hms.engine.selector.nodes import Condition
from hms.engine.selector.parser import parse
from hms.engine.selector.reader import DEFAULT_LIMITS, SelectorLimits
from hms.engine.selector.selector_cost import memory_of, price_of
from hms.errors.catalogue import InvalidArgument


class Selector:
    """A condition over the properties and header fields of a message (JMS 3.1 §3.8, F-E3).

    text: as it was written; condition: its nodes, None for a blank text, which matches everything;
    names: the properties and header fields it looks at; price: what it costs to ask;
    memory_bytes: what it takes at most. Raises
    SelectorSyntaxError, which tells the 0-based position, for what is no selector or beyond the
    limits.
    """

    __slots__ = ("_limits", "condition", "matches", "memory_bytes", "names", "price", "text")

    text: str
    condition: Condition | None
    names: frozenset[str]
    matches: Callable[[Properties], bool | None]
    """Whether a message with these properties matches: True, False, or None for unknown.

    It never raises. It is the compiled condition itself, which saves a call for each message.
    """

    def __init__(self, text: str, limits: SelectorLimits = DEFAULT_LIMITS) -> None:
        if not isinstance(text, str):
            raise InvalidArgument(what="text", detail=f"a {type(text).__name__} is not a text")
        self.text = text
        self._limits = limits
        self.condition, self.names = parse(text, limits)
        self.matches = compile_selector(self.condition)
        self.price = price_of(self.condition)
        self.memory_bytes = memory_of(text, self.condition)

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"

    def __reduce__(self) -> tuple[type["Selector"], tuple[str, SelectorLimits]]:
        # Closures do not pickle; the text says everything.
        return Selector, (self.text, self._limits)
