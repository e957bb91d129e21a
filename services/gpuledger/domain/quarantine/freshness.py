"""The one rule by which what is old is history, and leads to nothing. Pure."""

from datetime import datetime, timedelta


def is_fresh(at: datetime, max_age: timedelta, *times: datetime) -> bool:
    """Whether something of these times, such as when it happened and was recorded, may lead to an action as of `at`.

    `at` is the ledger's time of the record that the service has come to it, so that every fold has the same answer.
    """
    return at - min(times) <= max_age
