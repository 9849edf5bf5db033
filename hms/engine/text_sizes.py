"""What texts take in memory."""

__all__ = ["text_bytes"]


def text_bytes(text: str) -> int:
    """At most; the same at every node, so that it may decide what is refused (P3)."""
    return 100 + (len(text) if text.isascii() else 4 * len(text))
