"""What a setting of a check may be: the configuration refuses what a check would end with exit code 2 for. Pure."""

import re
from typing import Final

from gpuledger.domain.preflight.durations import seconds_of

TIMEOUT_MAX_S: Final = 24 * 3600.0
BANDWIDTH_MAX_GBPS: Final = 1e6
PORT_MAX: Final = 65_535

_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?):([0-9]{1,5})")


def timeout_s(text: str) -> float | None:
    """The seconds of a timeout as Go writes durations; None for what is none, and beyond 0 and `TIMEOUT_MAX_S`."""
    found = seconds_of(text)
    return found if found is not None and 0 < found <= TIMEOUT_MAX_S else None


def is_address(text: str) -> bool:
    """Whether it is HOST:PORT."""
    match = _ADDRESS.fullmatch(text)
    return match is not None and 0 < int(match.group(3)) <= PORT_MAX


def is_file_name(value: object) -> bool:
    """Whether it is the name of a file, without folders."""
    return isinstance(value, str) and value not in ("", ".", "..") and "/" not in value
