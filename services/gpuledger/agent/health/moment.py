"""A moment by both clocks of the agent."""

from datetime import datetime
from typing import NamedTuple


class Moment(NamedTuple):
    """`s` are seconds of a clock that nobody sets, for windows; `at` is the time that is told."""

    s: float
    at: datetime
