"""Message selectors: conditions of JMS 3.1 §3.8, parsed, checked and compiled. No I/O.

lexer, literals     text to tokens
parser, operands    tokens to nodes, within the limits of reader
compiler, closures  nodes to functions; values and like are what these compute with
"""

from hms.engine.selector.reader import KEPT_LIMITS
from hms.engine.selector.selector import Selector

__all__ = ["KEPT_LIMITS", "Selector"]
