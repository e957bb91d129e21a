"""Bounds how much each reporter sends: a bucket of reports, which time fills again. Pure but for its state."""

from collections import OrderedDict
from typing import NamedTuple

from gpuledger.healthreports.errors import RateExceededError


class RateLimits(NamedTuple):
    """A reporter has a bucket of `reports_burst_max` reports, which `reports_per_s_max` fill; so many are kept."""

    reports_per_s_max: float
    reports_burst_max: int
    reporters_max: int


class Bucket(NamedTuple):
    """What a reporter may still send, as of a time."""

    left: float
    at_s: float


class ReporterRates:
    """The buckets by reporter. The one that reported longest ago leaves where there are too many: it was full again."""

    def __init__(self, limits: RateLimits) -> None:
        self._limits = limits
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, reporter: str, reports: int, now_s: float) -> None:
        """Take a request's reports out of the reporter's bucket; a request counts as one report at least.

        Raises:
            RateExceededError: the bucket has not as many; none is taken.
        """
        limits = self._limits
        full = float(limits.reports_burst_max)
        before = self._buckets.pop(reporter, Bucket(full, now_s))
        left = min(full, before.left + max(0.0, now_s - before.at_s) * limits.reports_per_s_max)
        cost = max(1, reports)
        self._buckets[reporter] = Bucket(left - cost if cost <= left else left, now_s)
        if len(self._buckets) > limits.reporters_max:
            self._buckets.popitem(last=False)
        if cost > left:
            raise RateExceededError(
                f"{reporter} reports more than {limits.reports_per_s_max:g} times a second for long, or "
                f"{limits.reports_burst_max} at once. Send them again later, or only what has changed."
            )
