"""Profiles: what connections, sessions, producers and consumers are given from hms-client.toml.

An argument holds before the profile, the profile before [defaults] of the file, and these before
what is built in.
"""
