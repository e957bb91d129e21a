"""Who may do what others may not: the product itself, and those who run the cluster. Pure.

The policy `gpu-control-plane-restricted-access` names the same groups.
"""

from typing import Final

from gpuledger.api.kinds import OUR_MANAGERS
from gpuledger.edge.admission.serving.review import Review, User

MASTERS: Final = "system:masters"
_ACCOUNTS: Final = "system:serviceaccounts:"


def product_group(home: str) -> str:
    """The group of the product's service accounts; `home` is the namespace that it runs in."""
    return f"{_ACCOUNTS}{home}"


def trusted_groups(home: str) -> frozenset[str]:
    """Whoever is in one of these may change what belongs to the product."""
    return frozenset({MASTERS, product_group(home), f"{_ACCOUNTS}kube-system", f"{_ACCOUNTS}d8-system"})


def is_trusted(user: User, home: str) -> bool:
    """Whether what belongs to the product may be changed by them."""
    return not trusted_groups(home).isdisjoint(user.groups)


def is_by_the_product(review: Review, home: str) -> bool:
    """Whether the product itself asks: by its account, or, where it runs as an administrator, under its name."""
    if product_group(home) in review.user.groups:
        return True
    return is_trusted(review.user, home) and review.manager in OUR_MANAGERS
