"""What a pool selects."""

import pytest

from gpuledger.domain.machineconfig.selection import in_merge_order, read_selection, selection_of
from support.machine_configs import config_pool, machine_config

LABELS = {"role": "gpu", "zone": "a"}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, False),
        ({}, True),
        ({"labels": {"role": "gpu"}}, True),
        ({"labels": {"role": "cpu"}}, False),
        ({"requirements": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}, True),
        ({"requirements": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}, False),
        ({"requirements": [{"key": "rack", "operator": "NotIn", "values": ["a"]}]}, True),
        ({"labels": {"role": "gpu"}, "requirements": [{"key": "rack", "operator": "Exists"}]}, False),
    ],
)
def test_selectors(selector: dict[str, object] | None, expected: bool) -> None:
    pool = config_pool(node_selector=selector, config_selector=selector)
    selection = selection_of(pool)
    assert (selection.has_node("n", LABELS), selection.has_config("c", LABELS)) == (expected, expected)
    assert read_selection(pool.model_dump_json()) == selection


def test_a_pool_with_a_problem_selects_nothing() -> None:
    assert selection_of(config_pool(problems=("odd",))) == (None, None)


def test_the_order_of_a_merge() -> None:
    configs = [("b", machine_config(priority=5)), ("a", machine_config(priority=5)), ("c", machine_config(priority=0))]
    assert [name for name, _ in in_merge_order(configs)] == ["c", "a", "b"]
