"""The wire: frames, structures, versions, limits. No socket, no thread, no clock.

frames.py       the envelope and the packed kinds (send, confirm, deliver, settle)
structures.py   what a request, a reply and a call carry, as msgpack arrays
docs/reference/protocol.md says the same for a reader in another language.
"""
