"""The secret part of the path that API servers call about uses of the break-glass group.

What comes in there becomes an event of the ledger, and anybody in the cluster's network can reach the webhooks. So the
path ends in a token that only those know who may read the webhook configuration or the authority's secret. It follows
from the authority's key, which all replicas share, so that nothing else has to be stored.
"""

import hmac
from collections import deque
from typing import Final

from gpuledger.edge.webhooks.certificates.authority import Pair

TOKENS_KEPT: Final = 2
"""A former authority's token counts until each API server has the configuration with the next one."""

_PURPOSE: Final = b"break-glass"


def caller_token(authority: Pair) -> str:
    """The token that follows from an authority."""
    return hmac.new(authority.key, _PURPOSE, "sha256").hexdigest()


class CallerTokens:
    """The tokens that are accepted; none until there is an authority."""

    def __init__(self) -> None:
        self._accepted: deque[str] = deque(maxlen=TOKENS_KEPT)

    def accept(self, token: str) -> None:
        """Accept this one from now on."""
        if token not in self._accepted:
            self._accepted.append(token)

    def __contains__(self, token: object) -> bool:
        given = str(token).encode()
        return any(hmac.compare_digest(one.encode(), given) for one in self._accepted)
