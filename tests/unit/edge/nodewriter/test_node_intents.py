"""Of several intents about a node the newest is carried out, until each has its outcome."""

from typing import NamedTuple

from gpuledger.domain.table import TableSpec
from gpuledger.edge.nodewriter.node_intents import NodeIntents


class Wish(NamedTuple):
    node: str
    intent: str


FIRST, SECOND, OTHER = Wish("n1", "i1"), Wish("n1", "i2"), Wish("n2", "i3")


def intents(*decided: Wish) -> NodeIntents[Wish]:
    made = NodeIntents(TableSpec("newest", Wish, ("node",)), TableSpec("older", Wish, ("intent",)))
    for one in decided:
        made.decided(one.node, one)
    return made


def test_the_last_one_about_a_node_is_its_newest() -> None:
    found = intents(FIRST, SECOND, OTHER)
    assert found.about("n1") == [FIRST, SECOND]
    assert [found.is_newest(one) for one in (FIRST, SECOND, OTHER)] == [False, True, True]
    assert found.nodes() == ["n1", "n2"]


def test_the_same_intent_again_is_one() -> None:
    assert intents(FIRST, FIRST).about("n1") == [FIRST]


def test_an_outcome_ends_the_one_that_it_is_of() -> None:
    found = intents(FIRST, SECOND, OTHER)
    found.settled("n1", "i1")
    assert found.about("n1") == [SECOND]
    found.settled("n1", "i2")
    assert found.nodes() == ["n2"]


def test_an_outcome_of_the_newest_leaves_the_older_ones() -> None:
    found = intents(FIRST, SECOND)
    found.settled("n1", "i2")
    assert (found.about("n1"), found.is_newest(FIRST)) == ([FIRST], False)


def test_one_that_is_cancelled_waits_for_its_outcome() -> None:
    found = intents(FIRST)
    found.decided("n1", None)
    assert (found.about("n1"), found.is_newest(FIRST), found.newest.get("n1")) == ([FIRST], False, None)


def test_nodes_are_touched_by_decisions_alone() -> None:
    found = intents(FIRST, OTHER)
    assert found.take_touched() == ["n1", "n2"]
    found.settled("n1", "i1")
    assert found.take_touched() == []
    found.decided("n2", None)
    assert found.take_touched() == ["n2"]
