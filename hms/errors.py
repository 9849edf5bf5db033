"""Every error an application can catch: the root HmsError, families by code, and the catalogue."""

from field_buffer import catalogue
from field_buffer.catalogue import *  # noqa: F403 - this module is the catalogue's public face
from field_buffer.errors import HmsError as HmsError  # noqa: PLC0414 - public here too

__all__ = ["HmsError"]
__all__ += catalogue.__all__
