"""Answers about nodes in the scheduler's terms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.sharing.model import Refusal
from gpuledger.domain.sharing.preemption import Evictable
from gpuledger.edge.extender.decide import filter_result, priorities, refused_everywhere, with_more_victims
from gpuledger.edge.extender.wire import SCORE_MAX, Victims

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


@pytest.mark.parametrize(
    ("given_", "more", "expected"),
    [
        ((), [Evictable("x", 1)], ("x",)),
        (("high", "low"), [Evictable("x", 5), Evictable("y", 1)], ("high", "x", "low", "y")),
        (("nobody-knows", "low"), [Evictable("x", 20)], ("nobody-knows", "x", "low")),
        (("nobody-knows",), [Evictable("x", 20)], ("nobody-knows", "x")),
        (("high", "low"), [], ("high", "low")),
    ],
)
def test_more_victims_stand_by_their_priority_and_count_as_violations(
    given_: tuple[str, ...], more: list[Evictable], expected: tuple[str, ...]
) -> None:
    priorities = {"high": 10, "low": 2}
    found = with_more_victims(Victims(given_, 1), more, priorities.get)
    assert found == Victims(expected, 1 + len(more))
