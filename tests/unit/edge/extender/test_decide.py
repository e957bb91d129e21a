"""Answers about nodes in the scheduler's terms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.sharing.model import Refusal
from gpuledger.edge.extender.decide import filter_result, helped, priorities, refused_everywhere
from gpuledger.edge.extender.wire import SCORE_MAX, PreemptionArgs, Victims

FULL, NONE = Refusal("full"), Refusal("no devices", unresolvable=True)


def test_nodes_that_fit_keep_their_order_and_others_their_reasons() -> None:
    result = filter_result(("c", "a", "b", "d"), {"a": None, "b": FULL, "c": None, "d": NONE})
    assert result == (["c", "a"], {"b": "full"}, {"d": "no devices"})
    assert refused_everywhere(("a", "b"), NONE) == ((), {}, {"a": "no devices", "b": "no devices"})


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({"a": 100, "b": 50, "c": 0}, [10, 5, 0]),
        ({"a": 80, "b": 79, "c": 8}, [10, 9, 1]),
        ({"a": 3, "b": 1}, [10, 3, 0]),
        ({"a": 200, "b": 199, "c": -5}, [10, 9, 0]),
        ({}, [0, 0, 0]),
        ({"a": 0, "b": 0, "c": 0}, [0, 0, 0]),
    ],
)
def test_the_best_score_becomes_the_greatest(scores: dict[str, int], expected: list[int]) -> None:
    assert [score for _, score in priorities(("a", "b", "c"), scores)] == expected


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 300), min_size=1))
def test_scores_keep_their_order_and_only_the_best_get_the_greatest(scores: dict[str, int]) -> None:
    found = dict(priorities(scores, scores))
    best = max(scores.values())
    assert all(0 <= score <= SCORE_MAX for score in found.values())
    assert {name for name, score in found.items() if score == SCORE_MAX} == {
        name for name, score in scores.items() if score == best and best
    }
    ordered = sorted(scores, key=scores.__getitem__)
    assert [found[name] for name in ordered] == sorted(found.values())


def test_nodes_where_losing_the_victims_does_not_help_are_spared() -> None:
    victims = {"a": Victims(("u", "v"), 1), "b": Victims(("w",))}
    assert helped(PreemptionArgs({}, victims), {"a": None, "b": FULL}) == {"a": Victims(("u", "v"), 1)}
