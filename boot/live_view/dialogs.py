"""What is asked before an order, and the list of keys."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Static

__all__ = ["KEYS", "Help", "Question"]

KEYS = (
    ("s", "sort by the next column"),
    ("S", "sort by the column before"),
    ("i", "turn the order round"),
    ("/", "show the destinations that match, such as orders*"),
    ("Enter", "open the destination under the cursor: its figures and consumers"),
    ("Escape", "go back"),
    ("v", "services, with the latency of their calls"),
    ("c", "cluster: the links to the other nodes"),
    ("a", "alerts, and those that ended"),
    ("d", "destinations"),
    ("p", "pause or resume the destination, after a question"),
    ("Space", "freeze; the node is asked nothing until Space again"),
    ("w", "write what is seen to a file; w again ends it"),
    ("?", "these keys"),
    ("q", "quit"),
)
"""As docs/how-to/watch-a-node.md has them, which a test compares."""


class Question(ModalScreen[bool]):
    """Yes or no, before something is ordered."""

    DEFAULT_CSS = """
    Question { align: center middle; }
    Question > Static { width: 64; height: auto; padding: 1 2; border: heavy $warning; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape,q", "answer(False)", "no"),
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def compose(self) -> ComposeResult:
        """The text, and which keys answer it."""
        yield Static(f"{self.text}\n\ny yes   n no", markup=False)

    def action_answer(self, is_yes: bool) -> None:
        """End with the answer."""
        self.dismiss(is_yes)


class Help(ModalScreen[None]):
    """The keys."""

    DEFAULT_CSS = """
    Help { align: center middle; }
    Help > Static { width: 78; height: auto; padding: 0 2; border: heavy $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "close", "close")
    ]

    def compose(self) -> ComposeResult:
        """A key on a line."""
        yield Static("\n".join(f"{key:8}{text}" for key, text in KEYS), markup=False)

    def action_close(self) -> None:
        """Back to the page."""
        self.dismiss(None)
