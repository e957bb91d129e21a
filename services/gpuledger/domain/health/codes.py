"""Which error codes of a fault stand, and which of them a healthy report clears. Pure.

A fault is what a check of a monitor reports of an entity. Monitors report each of its error codes by an event of its
own and clear it so: a healthy report that names codes clears these, one that names none clears all. A fault is over
once none of its codes stands. This module has the one rule about that; who folds reports asks it.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

import orjson

from gpuledger.domain.fact import is_late
from gpuledger.events.health import CODES_MAX

NO_CODE: Final = ""
"""What stands of an unhealthy report without codes, and of codes beyond `CODES_MAX`: only a report on all ends it."""

CodeTimes = Mapping[str, datetime]
"""Codes, each with the time of its latest report."""


def reported_codes(codes: Iterable[str]) -> frozenset[str]:
    """What an unhealthy report has stand."""
    return frozenset(codes) or frozenset({NO_CODE})


def clears(cleared: Collection[str], code: str) -> bool:
    """Whether a healthy report that names these codes, or none, ends what stands of a code."""
    return not cleared or code in cleared


def with_reported(standing: CodeTimes, codes: Iterable[str], at: datetime) -> CodeTimes:
    """What stands with codes that were reported at a time; what does not fit stands without its code."""
    after = dict(standing)
    for code in sorted(codes):
        kept = code if code in after or len(after) < CODES_MAX else NO_CODE
        after[kept] = max(at, after.get(kept, at))
    return after


def without_cleared(standing: CodeTimes, cleared: Collection[str], at: datetime) -> CodeTimes:
    """What stands after a healthy report of a time that names these codes, or none: what came later stays."""
    return {code: time for code, time in standing.items() if is_late(time, at) or not clears(cleared, code)}


def is_cleared(cleared: CodeTimes, code: str, at: datetime) -> bool:
    """Whether what was reported of a code at a time is over: the code, or all (`NO_CODE`), was cleared later."""
    return is_late(cleared.get(code), at) or is_late(cleared.get(NO_CODE), at)


def with_cleared(before: CodeTimes, cleared: Collection[str], at: datetime) -> CodeTimes:
    """The times of what was cleared, with those of another healthy report; of too many the earliest are forgotten."""
    after = dict(before)
    for code in cleared or (NO_CODE,):
        after[code] = max(at, after.get(code, at))
    return dict(sorted(after.items(), key=lambda one: (one[1], one[0]))[-CODES_MAX:])


def codes_text(codes: CodeTimes) -> str:
    """Codes with their times as a row has them: a JSON object, or an empty text for none."""
    in_utc = {code: time.astimezone(UTC) for code, time in codes.items()}
    return orjson.dumps(in_utc, option=orjson.OPT_SORT_KEYS).decode() if codes else ""


def codes_of_text(text: str) -> CodeTimes:
    """Codes with their times, from a row."""
    return {code: datetime.fromisoformat(at) for code, at in orjson.loads(text).items()} if text else {}
