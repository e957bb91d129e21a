"""Nodes: what is known now, and the history it follows from."""

from itertools import permutations
from typing import Any

from gpuledger.events.node import NodeDecommissioned, NodeGone, NodeObserved, NodeRegistered
from gpuledger.events.payload import Payload
from gpuledger.events.slot import SlotDeclared
from gpuledger.readmodels.projections import NodesProjection
from support.events import IMPORT, event, folded, hour, log_of, rows_of


def tables(*facts: tuple[float, str, Payload], source: str = IMPORT) -> dict[str, list[Any]]:
    """The rows after these facts, recorded in this order."""
    events = [
        event(data, subject, number=number, at=at, source=source) for number, (at, subject, data) in enumerate(facts, 1)
    ]
    rows = rows_of(folded(NodesProjection(), log_of(events)), positions=False)
    return {name: sorted(table.values(), key=str) for name, table in rows.items()}


SAID = [
    (1.0, "n1", NodeRegistered(gpu_count=4, gpu_model="K20")),
    (3.0, "n1", NodeRegistered(gpu_count=8)),
    (5.0, "n1", NodeDecommissioned()),
    (2.0, "s1", SlotDeclared(node="n1", index=0)),
    (0.0, "s2", SlotDeclared(node="n1", index=1)),
]


def test_history_and_present_are_the_same_in_any_order() -> None:
    expected = tables(*SAID)
    assert [(row.valid_from, row.valid_to, row.present, row.gpu_count) for row in expected["node_history"]] == [
        (hour(1), hour(3), True, 4),
        (hour(3), hour(5), True, 8),
        (hour(5), None, False, None),
    ]
    (node,) = expected["node"]
    assert (node.present, node.slots, node.first_seen_at) == (False, 2, hour(0))
    assert all(tables(*order) == expected for order in permutations(SAID))


def test_a_slot_declared_again_counts_once() -> None:
    rows = tables((2, "s1", SlotDeclared(node="n1")), (1, "s1", SlotDeclared(node="n1", index=3)))
    assert (rows["node"][0].slots, rows["node_slot"][0].declared_at) == (1, hour(1))


def test_a_node_that_only_slots_name_is_present() -> None:
    (node,) = tables((1, "s1", SlotDeclared(node="n1")))["node"]
    assert (node.node, node.present, node.gpu_count) == ("n1", True, None)


def test_of_two_registrations_of_one_time_the_one_recorded_later_holds() -> None:
    rows = tables((1, "n1", NodeRegistered(gpu_count=1)), (1, "n1", NodeRegistered(gpu_count=2)))
    assert [row.gpu_count for row in rows["node_history"]] == [row.gpu_count for row in rows["node"]] == [2]


def test_a_node_that_a_watcher_saw_is_present_until_it_is_gone() -> None:
    labels = {"gpu.deckhouse.io/device-count": "8", "nvidia.com/gpu.product": "NVIDIA-H200"}
    bare = NodeObserved(uid="u1", labels={"gpu.deckhouse.io/device-count": "many"})
    facts = [(1.0, "n1", NodeObserved(uid="u1", labels=labels)), (3.0, "n1", bare), (5.0, "n1", NodeGone(uid="u1"))]
    for order in permutations(facts):
        rows = tables(*order, source="/watchers/nodes")
        assert [(row.present, row.gpu_count, row.gpu_model) for row in rows["node_history"]] == [
            (True, 8, "NVIDIA-H200"),
            (True, None, None),
            (False, None, None),
        ]
        assert [row.present for row in rows["node"]] == [False]
