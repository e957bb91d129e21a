"""What a preflight check may report: its own result, about entities that it names, without overrides. Pure.

Checks run in pods of tenants, so that less is taken from them than from health monitors. A report without entities
would begin a fault of the whole node, or end those of all cards; only one that says nothing about hardware has none.
"""

from collections.abc import Collection
from typing import Final

from gpuledger.api.preflight import MONITOR, NEUTRAL_OUTCOMES
from gpuledger.healthreports.healthevents_pb2 import HealthEvent, ProcessingStrategy

CHECK_EVENTS_MAX: Final = 64
"""How many reports a request of a check may hold."""

CHECK_ENTITIES_MAX: Final = 64
"""How many entities a report of a check may name."""

CHECK_REPORT_BYTES_MAX: Final = 32 * 1024
"""How large a report of a check may be on the wire."""


def check_report_denial(event: HealthEvent, place: str, checks: Collection[str]) -> str | None:
    """Why a report may not come from checks with these names, with what to do; None if it may."""
    return _identity_denial(event, place, checks) or _content_denial(event, place)


def _identity_denial(event: HealthEvent, place: str, checks: Collection[str]) -> str | None:
    if event.agent != MONITOR:
        return f"{place}.agent is {event.agent[:80]!r}, but a preflight check reports as {MONITOR!r} alone."
    if event.checkName not in checks:
        return (
            f"{place}.checkName is {event.checkName[:80]!r}, but only {', '.join(sorted(checks))} may report here and "
            "now. A check reports about itself, by the name of its container."
        )
    return None


def _content_denial(event: HealthEvent, place: str) -> str | None:
    if any(one.force or one.skip for one in (event.quarantineOverrides, event.drainOverrides)):
        return f"{place} overrides the quarantine or the drain, which a preflight check may not. Leave both out."
    if not event.entitiesImpacted and not is_neutral(event):
        return (
            f"{place}.entitiesImpacted is empty, so that the report would be about the whole node. Name the cards that "
            f"were checked, or store only (STORE_ONLY) a healthy report with one code of "
            f"{', '.join(one.upper().replace('-', '_') for one in sorted(NEUTRAL_OUTCOMES))}."
        )
    if len(event.entitiesImpacted) > CHECK_ENTITIES_MAX:
        return (
            f"{place}.entitiesImpacted has {len(event.entitiesImpacted)}; a check names {CHECK_ENTITIES_MAX} at most."
        )
    if event.ByteSize() > CHECK_REPORT_BYTES_MAX:
        return f"{place} has {event.ByteSize()} bytes; a report of a check has {CHECK_REPORT_BYTES_MAX} at most."
    return None


def is_neutral(event: HealthEvent) -> bool:
    """Whether a report says nothing about hardware, by its form: it neither begins nor ends a fault."""
    is_stored = event.processingStrategy == ProcessingStrategy.STORE_ONLY
    codes = [code.lower().replace("_", "-") for code in event.errorCode]
    return is_stored and event.isHealthy and len(codes) == 1 and codes[0] in NEUTRAL_OUTCOMES
