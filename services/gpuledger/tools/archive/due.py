"""When a generation is closed by itself: once it is of an earlier month, or large enough. Pure."""

import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

from gpuledger.tools.errors import RequestError

MONTH: Final = "month"

_SIZE: Final = re.compile(r"([1-9][0-9]{0,6})GiB")
_GIB: Final = 1 << 30


class ClosingPolicy(NamedTuple):
    """Close what began in an earlier month (UTC), and what has so many bytes (None: whatever it has)."""

    by_month: bool
    bytes_min: int | None


def parse_policy(text: str) -> ClosingPolicy:
    """The policy that a text names: `month`, a size such as `50GiB`, or both with a comma.

    Raises:
        RequestError: it names none.
    """
    by_month, bytes_min = False, None
    for part in text.split(","):
        size = _SIZE.fullmatch(part.strip())
        if size is not None:
            bytes_min = int(size[1]) * _GIB
        elif part.strip() == MONTH:
            by_month = True
        else:
            hint = "Write `month`, a size such as `50GiB`, or both"
            raise RequestError(f"{part.strip()!r} does not say when to close", hint)
    return ClosingPolicy(by_month, bytes_min)


def is_due(policy: ClosingPolicy, began: datetime, size: int, now: datetime) -> bool:
    """Whether to close a generation whose first event was recorded then, and whose stream has so many bytes."""
    months = [(at.astimezone(UTC).year, at.astimezone(UTC).month) for at in (began, now)]
    if policy.by_month and months[0] < months[1]:
        return True
    return policy.bytes_min is not None and size >= policy.bytes_min
