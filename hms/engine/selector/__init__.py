"""Message selectors: conditions of JMS 3.1 §3.8, parsed, checked and compiled. No I/O.

lexer, literals     text to tokens
parser, operands    tokens to nodes, within the limits of reader
compiler, closures  nodes to functions; values and like are what these compute with
"""

from hms.engine.selector.nodes import (
    And,
    Arithmetic,
    Between,
    Comparison,
    Condition,
    In,
    IsNull,
    Like,
    Literal,
    Name,
    Node,
    Not,
    Or,
    Scalar,
    Sign,
    Test,
    Value,
)
from hms.engine.selector.reader import DEFAULT_LIMITS, KEPT_LIMITS, SelectorLimits
from hms.engine.selector.selector import Selector

__all__ = [
    "DEFAULT_LIMITS",
    "KEPT_LIMITS",
    "And",
    "Arithmetic",
    "Between",
    "Comparison",
    "Condition",
    "In",
    "IsNull",
    "Like",
    "Literal",
    "Name",
    "Node",
    "Not",
    "Or",
    "Scalar",
    "Selector",
    "SelectorLimits",
    "Sign",
    "Test",
    "Value",
]
