"""Queues: destinations, pending lists, dispatch, settlement, expiry, dead letters."""
