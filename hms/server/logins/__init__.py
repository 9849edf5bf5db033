"""Logins: who a connection is, and what it may do. Loaded by a node that is secured only."""
