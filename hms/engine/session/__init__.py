"""Connections, sessions, local transactions, service listeners, temporary destinations."""
