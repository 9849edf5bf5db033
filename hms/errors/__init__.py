"""Every error an application can catch: the root HmsError, families by code, and the catalogue."""

from hms.errors import catalogue
from hms.errors.catalogue import *  # noqa: F403 - this module is the catalogue's public face
from hms.errors.tree import HmsError as HmsError

__all__ = ["HmsError"]
__all__ += catalogue.__all__
