"""A reporter's share: a bucket of reports that time fills again."""

import pytest

from gpuledger.healthreports.errors import RateExceededError
from gpuledger.healthreports.rates import RateLimits, ReporterRates

LIMITS = RateLimits(reports_per_s_max=2.0, reports_burst_max=10, reporters_max=2)


def test_a_bucket_is_full_at_first_and_fills_again() -> None:
    rates = ReporterRates(LIMITS)
    rates.take("a", 10, 0.0)
    with pytest.raises(RateExceededError, match="a reports more than 2 times a second"):
        rates.take("a", 1, 0.0)
    rates.take("b", 1, 0.0)
    rates.take("a", 2, 1.0)
    with pytest.raises(RateExceededError):
        rates.take("a", 0, 1.0)


def test_what_is_refused_costs_nothing_and_no_bucket_overflows() -> None:
    rates = ReporterRates(LIMITS)
    with pytest.raises(RateExceededError):
        rates.take("a", 11, 0.0)
    rates.take("a", 10, 1_000.0)
    with pytest.raises(RateExceededError):
        rates.take("a", 1, 900.0)


def test_the_reporters_that_are_kept_are_bounded() -> None:
    rates = ReporterRates(LIMITS)
    for name in ("a", "b", "c"):
        rates.take(name, 10, 0.0)
    rates.take("a", 10, 0.0)
    with pytest.raises(RateExceededError):
        rates.take("c", 1, 0.0)
