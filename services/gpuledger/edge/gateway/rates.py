"""Bounds how much each reporter sends: a bucket of reports, which time fills again. Pure but for its state."""

from collections import OrderedDict
from typing import NamedTuple

from gpuledger.edge.gateway.bounds import GatewayBounds
from gpuledger.healthreports.errors import RateExceededError


class Bucket(NamedTuple):
    """What a reporter may still send, as of a time."""

    left: float
    at_s: float


class ReporterRates:
    """The buckets by reporter. The one that reported longest ago leaves where there are too many: it was full again."""

    def __init__(self, bounds: GatewayBounds) -> None:
        self._bounds = bounds
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, reporter: str, reports: int, now_s: float) -> None:
        """Take a request's reports out of the reporter's bucket; a request counts as one report at least.

        Raises:
            RateExceededError: the bucket has not as many; none is taken.
        """
        bounds = self._bounds
        full = float(bounds.reports_burst_max)
        before = self._buckets.pop(reporter, Bucket(full, now_s))
        left = min(full, before.left + max(0.0, now_s - before.at_s) * bounds.reports_per_s_max)
        cost = max(1, reports)
        self._buckets[reporter] = Bucket(left - cost if cost <= left else left, now_s)
        if len(self._buckets) > bounds.reporters_max:
            self._buckets.popitem(last=False)
        if cost > left:
            raise RateExceededError(
                f"{reporter} reports more than {bounds.reports_per_s_max:g} times a second for long, or "
                f"{bounds.reports_burst_max} at once. Send them again later, or only what has changed."
            )
