"""Ordering: sorted queues, groups of messages and global orders (F-C15, F-C16, F-C17)."""
