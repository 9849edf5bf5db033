"""Who may do what: permissions, roles and the policy that they make. Nothing here knows a login."""

from hms.engine.security.permissions import (
    Permission,
    Unacceptable,
    doubt_about,
    read_permission,
)
from hms.engine.security.policy import Policy, Rights
from hms.engine.security.roles import BUILT_IN, Role, check_roles

__all__ = [
    "BUILT_IN",
    "Permission",
    "Policy",
    "Rights",
    "Role",
    "Unacceptable",
    "check_roles",
    "doubt_about",
    "read_permission",
]
