"""Counts the results of preflight checks, which are over before Prometheus could ask them.

Whoever takes a report counts it, once however often it is sent again. Tenants choose names of gangs, and third-party
checks their codes: so values of labels are bounded in length and number, and metadata that is not valid is ignored.
"""

from collections.abc import Iterable, Mapping
from typing import Final, get_args

from prometheus_client import Counter, Histogram

from gpuledger.api.preflight import CHECK_PREFIX, MONITOR, Detail
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.preflight import CheckOutcome
from gpuledger.healthreports.coalescing import ReportResult

LABEL_CHARACTERS_MAX: Final = 64
LABEL_VALUES_MAX: Final = 256
"""How many values a label has, beside `OTHER` for all further ones."""

OTHER: Final = "other"

SECONDS_MAX: Final = 86_400.0
DURATIONS_S: Final = (1, 5, 15, 30, 60, 120, 300, 600, 1_800)

OUTCOMES: Final = frozenset(get_args(CheckOutcome))

CHECKS: Final = Counter("preflight_check", "Reports of preflight checks, by result.", ["check", "result"])
DURATIONS: Final = Histogram("preflight_check_duration_seconds", "How long checks ran.", ["check"], buckets=DURATIONS_S)
FAILURES: Final = Counter(
    "preflight_check_failures", "Failures of preflight checks, by error code.", ["check", "node", "error_code"]
)
GANG_WAITS: Final = Histogram(
    "preflight_gang_wait_seconds", "How long checks waited for their gang.", ["workload"], buckets=DURATIONS_S
)
CONFIG_ERRORS: Final = Counter("preflight_config_errors", "Checks with invalid settings, by setting.", ["error"])


class LabelValues:
    """The values of a label: the first ones as they are, all further ones as `OTHER`."""

    def __init__(self, values_max: int = LABEL_VALUES_MAX) -> None:
        self._values_max = values_max
        self._values: set[str] = set()

    def of(self, text: str) -> str:
        """The value for a text."""
        value = "".join(one if one.isprintable() else "?" for one in text[:LABEL_CHARACTERS_MAX])
        if value not in self._values and len(self._values) >= self._values_max:
            return OTHER
        self._values.add(value)
        return value


class CheckResults:
    """Counts the reports of checks that were taken; one for each process."""

    def __init__(self) -> None:
        self._checks, self._nodes, self._codes = LabelValues(), LabelValues(), LabelValues()
        self._workloads, self._errors = LabelValues(), LabelValues()

    def count(self, node: str, reports: Iterable[tuple[NodeHealthReported, ReportResult]]) -> None:
        """Count reports about a node by what became of them; one that was sent again counts no more."""
        for data, result in reports:
            if data.monitor == MONITOR and data.check.startswith(CHECK_PREFIX) and result is not ReportResult.REPEATED:
                self._count(node, data)

    def _count(self, node: str, data: NodeHealthReported) -> None:
        check, outcome = self._checks.of(data.check.removeprefix(CHECK_PREFIX)), data.metadata.get(Detail.OUTCOME)
        for code in () if data.healthy else data.codes or ("",):
            FAILURES.labels(check, self._nodes.of(node), self._codes.of(code)).inc()
        if outcome not in OUTCOMES:
            return  # one more report of a check, whose first report has the outcome
        CHECKS.labels(check, outcome).inc()
        if (duration_s := _seconds(data.metadata, Detail.DURATION_S)) is not None:
            DURATIONS.labels(check).observe(duration_s)
        if (wait_s := _seconds(data.metadata, Detail.GANG_WAIT_S)) is not None:
            GANG_WAITS.labels(self._workloads.of(_workload(data.metadata))).observe(wait_s)
        if outcome == "config-error":
            CONFIG_ERRORS.labels(self._errors.of(data.metadata.get(Detail.ERROR, ""))).inc()


def _workload(metadata: Mapping[str, str]) -> str:
    """The gang of a report, with its namespace."""
    return f"{metadata.get(Detail.POD_NAMESPACE, '')}/{metadata.get(Detail.GANG, '')}"


def _seconds(metadata: Mapping[str, str], key: Detail) -> float | None:
    """The seconds under a key; None: there are none, or nothing that a clock could have measured."""
    try:
        found = float(metadata[key])
    except (KeyError, ValueError):
        return None
    return found if 0 <= found <= SECONDS_MAX else None
