"""Doors: protocols by which clients reach a node, sans-IO.

A door turns what came from a peer into commands of the table of commands (hms/wire/commands.py),
and what the node has to say into bytes. Between them stands the broker, which knows neither. The
release of effects knows their order, not their encoding. `native_door` is the protocol of
hms.client; `door` says what another one has to bring.
"""
