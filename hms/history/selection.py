"""Selection: events of the history judged by a message selector."""

from collections.abc import Callable

from hms.engine.messages import StoredMessage
from hms.engine.selector import Selector
from hms.engine.selector.selector_fields import checked_selector, selector_view
from hms.history.events import Event

__all__ = ["message_test", "selector_test"]


def selector_test(text: str) -> Callable[[Event], bool]:
    """Whether a sent or forwarded event passes a selector, judged by the broker's own rules."""
    test = message_test(text)

    def matches(event: Event) -> bool:
        head = event.head or b""
        message = StoredMessage.of(
            int(event.message_id, 16),
            event.offset,
            event.timestamp or 0,
            event.expiration or 0,
            event.priority or 0,
            0,
            len(head),
            head,
            event.persistent,
        )
        return test(message)

    return matches


def message_test(text: str) -> Callable[[StoredMessage], bool]:
    """The same for a message."""
    selector = checked_selector(text) or Selector(text)
    names = selector.names
    return lambda message: selector.matches(selector_view(message, names)) is True
