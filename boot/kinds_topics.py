"""The kinds of values in hms.conf that only topics and their subscriptions have."""

from typing import Any

from hms.boot.kinds import Refused, shown
from hms.engine.topic import check_topic, is_given
from hms.errors.catalogue import TopicStringError

TEXT_CHARACTERS_MAX = 1024


def text(value: Any) -> str:
    """A text of at most 1024 characters."""
    if not isinstance(value, str) or len(value) > TEXT_CHARACTERS_MAX:
        raise Refused(f"must be a text of at most {TEXT_CHARACTERS_MAX} characters")
    return value


def topic_string(value: Any) -> str:
    """A topic string; / ends a level."""
    if not isinstance(value, str) or not is_given(value):
        raise Refused(f'must be a topic such as "Sports/Football", not {shown(value)}')
    try:
        return check_topic(value)
    except TopicStringError as fault:
        raise Refused(str(fault.detail)) from fault
