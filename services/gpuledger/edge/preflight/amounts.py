"""Quantities of containers, which repeat from pod to pod, so what was read is kept. Pure."""

from functools import lru_cache
from typing import Final

from gpuledger.domain.quantities import Quantity, parse_quantity

AMOUNTS_KEPT_MAX: Final = 4096


def amount_of(given: object) -> Quantity | None:
    """A quantity; None for what is none, which is left to the API server to refuse."""
    return _amount(given) if isinstance(given, str | int | float) else None


@lru_cache(maxsize=AMOUNTS_KEPT_MAX, typed=True)
def _amount(given: str | float) -> Quantity | None:
    try:
        return parse_quantity(given)
    except ValueError:
        return None
