"""Publishing what happened in the database: tracked publishers."""

from sqlqueue.relay.tracking import Tracking

__all__ = ["Tracking"]
