"""Which errors of the API server hold back every write, and which are about the one object alone."""

import pytest

from gpuledger.edge.kube.circuit_breaker import CircuitBreaker, RateLimiter
from gpuledger.edge.kube.errors import (
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
    ("error", "holds_all_back"),
    [
        (UnavailableError("away"), True),
        (UnauthorizedError("who?", 401), True),
        (ForbiddenError("no such right, or a policy", 403), False),
        (InvalidError("bad", 422), False),
        (SchemaError("no such field", 500), False),
        (WebhookAwayError("nobody answers for this kind"), False),
    ],
)
async def test_only_trouble_of_the_server_holds_everything_back(error: KubeError, holds_all_back: bool) -> None:
    limiter = RateLimiter(1000.0, 1000, lambda: NOW_S)
    breaker = CircuitBreaker(limiter, Backoff(first_s=60.0, max_s=60.0), lambda: 0.0, lambda: NOW_S)
    with pytest.raises(type(error)):
        async with breaker.request():
            raise error
    assert (breaker.retry_at_s > NOW_S) is holds_all_back
