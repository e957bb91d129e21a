"""How long is waited after failures: pauses grow, are bounded, spread, and respect what a server requests."""

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.runtime.backoff import Backoff, Retries


@given(failures=st.integers(1, 10_000), jitter=st.floats(0, 1), requested_s=st.none() | st.floats(0, 10_000))
def test_a_pause_has_bounds(failures: int, jitter: float, requested_s: float | None) -> None:
    backoff = Backoff()
    pause_s = backoff.pause_s(failures, jitter, requested_s)
    least_s = min(requested_s or 0, backoff.retry_after_max_s)
    assert max(least_s, backoff.first_s / 2) <= pause_s + 1e-9
    assert pause_s <= max(backoff.max_s, least_s) * 1.5 + 1e-9


def test_pauses_double_up_to_their_bound_and_jitter_halves_them_at_most() -> None:
    backoff = Backoff(first_s=0.2, max_s=15.0)
    assert [backoff.pause_s(failures) for failures in (1, 2, 3, 99)] == [0.2, 0.4, 0.8, 15.0]
    assert backoff.pause_s(99, jitter=0.0) == 7.5


def test_failures_are_counted_until_an_attempt_succeeds() -> None:
    retries = Retries(Backoff(first_s=1.0, max_s=4.0))
    assert [retries.pause_s() for _ in range(4)] == [1.0, 2.0, 4.0, 4.0]
    assert retries.failures == 4
    retries.reset()
    assert retries.pause_s(retry_after_s=30.0) == 45.0
