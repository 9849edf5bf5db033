"""Schedules: messages that the node sends again and again."""
