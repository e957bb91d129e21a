"""Tells the product itself and the cluster's administrators from all other users. Pure.

The policy `gpu-control-plane-restricted-access` names the same groups.
"""

from typing import Final

from gpuledger.api.kinds import GPU_GROUP, OUR_MANAGERS
from gpuledger.edge.webhooks.serving.review import AdmissionRequest, Requester

MASTERS: Final = "system:masters"
BREAK_GLASS: Final = f"{GPU_GROUP}/break-glass"
"""The group whose members nothing of ours keeps from changing GPUDevices and GPUNodeStates; each use is recorded."""

_ACCOUNTS: Final = "system:serviceaccounts:"


def product_group(home: str) -> str:
    """The group of the product's service accounts; `home` is the namespace that it runs in."""
    return f"{_ACCOUNTS}{home}"


def trusted_groups(home: str) -> frozenset[str]:
    """The groups whose members may change what belongs to the product."""
    return frozenset({MASTERS, product_group(home), f"{_ACCOUNTS}kube-system", f"{_ACCOUNTS}d8-system"})


def is_trusted(user: Requester, home: str) -> bool:
    """Whether the user may change what belongs to the product."""
    return not trusted_groups(home).isdisjoint(user.groups)


def is_by_the_product(request: AdmissionRequest, home: str) -> bool:
    """Whether the product makes the request: by its account, or under its name where it runs as an administrator."""
    if product_group(home) in request.user.groups:
        return True
    return is_trusted(request.user, home) and request.manager in OUR_MANAGERS
