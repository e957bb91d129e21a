"""When something that an Event may be about began. Pure."""

from datetime import datetime
from typing import NamedTuple


class Since(NamedTuple):
    """When something began, and when that was recorded."""

    at: datetime
    recorded_ns: int
