"""Quantities in objects of the API: checked, compared, and put into the canonical text in which they are stored."""

from collections.abc import Iterable
from fractions import Fraction

from gpuledger.domain.quantities import UNIT, parse_quantity
from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.errors import bad_request


def amount(given: object) -> Fraction:
    """How much a quantity is. Raises ValueError."""
    return Fraction(parse_quantity(given).nanos, UNIT)


def canonical(given: object) -> str:
    """The text in which Kubernetes answers a quantity: `0.25` is `250m`, `1024Mi` is `1Gi`. Raises ValueError."""
    return str(parse_quantity(given))


def check_quantities(maps: Iterable[Object], kind: str, api_version: str) -> None:
    """Refuse with 400 where any value of the maps is no quantity."""
    version = api_version.rpartition("/")[2]
    try:
        for values in maps:
            for value in values.values():
                parse_quantity(value)
    except ValueError as failure:
        text = f'{kind} in version "{version}" cannot be handled as a {kind}: {failure}'
        raise bad_request(text) from failure


def write_canonically(maps: Iterable[Object]) -> None:
    """Put every value of the maps, in place, into its canonical text."""
    for values in maps:
        for name, value in values.items():
            values[name] = canonical(value)
