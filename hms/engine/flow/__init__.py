"""Limits: overflow policies, flow control, pause."""
