"""How many units a pod requests: whole units, and the most that it holds at a time."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.pools.requests import ContainerRequest, Units, is_sidecar, read_units, units_held

units = st.dictionaries(st.sampled_from("ab"), st.integers(1, 5)).map(Counter[str])
init = st.builds(ContainerRequest, units, st.just(value=True), st.booleans())
main = st.builds(ContainerRequest, units, st.just(value=False), st.just(value=False))


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [
        ("2", Units(2, is_exact=True)),
        (3, Units(3, is_exact=True)),
        ("2k", Units(2000, is_exact=True)),
        ("0", Units(0, is_exact=True)),
        ("1500m", Units(2, is_exact=False)),
        ("-1", Units(0, is_exact=False)),
        ("many", Units(0, is_exact=False)),
        (None, Units(0, is_exact=True)),
    ],
)
def test_units_are_whole(quantity: object, expected: Units) -> None:
    assert read_units(quantity) == expected


def test_a_sidecar_is_an_init_container_that_always_restarts() -> None:
    assert is_sidecar({"restartPolicy": "Always"})
    assert not is_sidecar({"restartPolicy": "OnFailure"})
    assert not is_sidecar({})


@given(st.lists(init, max_size=4), st.lists(main, max_size=3))
def test_a_pod_holds_the_most_that_runs_at_a_time(
    before: list[ContainerRequest], after: list[ContainerRequest]
) -> None:
    """Each init container runs beside the sidecars before it, and all others beside all sidecars."""
    sidecars = [one for one in before if one.is_sidecar]
    moments = [[*(one for one in before[:index] if one.is_sidecar), each] for index, each in enumerate(before)]
    moments.append([*sidecars, *after])
    held = units_held([*before, *after])
    for resource in "ab":
        assert held[resource] == max(sum(one.units[resource] for one in moment) for moment in moments)
