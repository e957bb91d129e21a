"""Nodes that are let in again and again."""

import pytest

from gpuledger.edge.authcallout import repeats
from gpuledger.edge.authcallout.repeats import REPEATS, WITHIN_S, Repeats


def test_it_is_odd_once_and_again_only_after_a_while() -> None:
    found = Repeats()
    assert [second for second in range(REPEATS + 3) if found.is_odd("w1", second)] == [REPEATS - 1]
    assert [second for second in range(REPEATS) if found.is_odd("w1", WITHIN_S + second)] == [REPEATS - 1]


def test_logins_that_end_in_their_time_are_not_odd() -> None:
    found = Repeats()
    assert not any(found.is_odd("w1", number * WITHIN_S) for number in range(10 * REPEATS))


def test_nodes_are_counted_each_for_itself_and_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "NODES_MAX", 10)
    found = Repeats()
    assert not any(found.is_odd(f"w{number}", 0) for number in range(REPEATS * 100))
    assert len(found._granted) == 10
