"""So many of something, as a person writes it."""

__all__ = ["counted"]


def counted(count: int, noun: str, plural: str = "") -> str:
    """With the noun in the singular or the plural: 1 message, 2,000 messages."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
