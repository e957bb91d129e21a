"""Which errors of the API server hold back every write, and which are about the one object alone."""

import pytest

from gpuledger.edge.kube.circuit_breaker import CircuitBreaker, RateLimiter, is_refusal
from gpuledger.edge.kube.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    KubeError,
    SchemaError,
    UnauthorizedError,
    UnavailableError,
    WebhookAwayError,
)
from gpuledger.runtime.backoff import Backoff

NOW_S = 1000.0


@pytest.mark.parametrize(
    ("error", "holds_all_back", "refuses"),
    [
        (UnavailableError("away"), True, False),
        (UnauthorizedError("who?", 401), True, False),
        (ForbiddenError("no such right, or a policy", 403), False, True),
        (InvalidError("bad", 422), False, True),
        (SchemaError("no such field", 500), False, True),
        (ConflictError("somebody was faster", 409), False, False),
        (WebhookAwayError("nobody answers for this kind"), False, False),
    ],
)
async def test_only_trouble_of_the_server_holds_everything_back(
    error: KubeError, holds_all_back: bool, refuses: bool
) -> None:
    limiter = RateLimiter(1000.0, 1000, lambda: NOW_S)
    breaker = CircuitBreaker(limiter, Backoff(first_s=60.0, max_s=60.0), lambda: 0.0, lambda: NOW_S)
    with pytest.raises(type(error)):
        async with breaker.request():
            raise error
    assert (breaker.retry_at_s > NOW_S, is_refusal(error)) == (holds_all_back, refuses)
