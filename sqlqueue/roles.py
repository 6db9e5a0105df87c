"""The roles that columns play."""

from datetime import datetime
from enum import Enum
from typing import Any
from uuid import UUID


class Role(Enum):
    """The behaviours that a column can turn on, by the name that errors and docs use."""

    ID = "id"
    GROUP = "group"
    PRIORITY = "priority"
    PARTITION_KEY = "partition_key"
    RETRY_AFTER = "retry_after"
    ATTEMPT = "attempt"
    PROCESSED_AT = "processed_at"
    LEASE = "lease"
    HEADERS = "headers"
    PAYLOAD = "payload"
    ERROR = "error"
    RUNNING = "running"


#: What a row object holds in a role's field where neither the row nor the declaration names a value.
DEFAULTS: dict[Role, Any] = {
    Role.PRIORITY: 0,
    Role.PARTITION_KEY: None,
    Role.RETRY_AFTER: None,
    Role.ATTEMPT: 0,
    Role.PROCESSED_AT: None,
    Role.LEASE: None,
    Role.HEADERS: None,
    Role.ERROR: None,
    Role.RUNNING: False,
}


#: The Python types that a role's column may be declared with; a role that is not named takes any.
ROLE_TYPES: dict[Role, tuple[type, ...]] = {
    Role.ID: (int, str, UUID, bytes),
    Role.GROUP: (str,),
    Role.PRIORITY: (int, float),
    Role.RETRY_AFTER: (datetime, int, float),
    Role.ATTEMPT: (int,),
    Role.PROCESSED_AT: (datetime, int, float),
    Role.LEASE: (datetime, int, float),
    Role.HEADERS: (str, dict),
    Role.ERROR: (str,),
    Role.RUNNING: (bool, int),
}

#: Roles that a row in the making leaves empty, so their columns must take NULL.
NULLABLE = (Role.LEASE, Role.PROCESSED_AT, Role.ERROR)
