"""Packages of databases, imported when a resource manager needs them."""

import importlib
from typing import Any

from hms.errors.catalogue import ResourceDriverMissing

__all__ = ["import_driver"]

_PACKAGES = {"psycopg": "psycopg", "pymysql": "PyMySQL"}


def import_driver(resource: str, module: str) -> Any:
    """The module; ResourceDriverMissing."""
    try:
        return importlib.import_module(module)
    except ImportError as fault:
        raise ResourceDriverMissing(resource=resource, package=_PACKAGES[module]) from fault
