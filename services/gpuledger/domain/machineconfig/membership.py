"""Which nodes belong to which MachineConfigPools, and which belong to several. Pure.

It follows from the rows of nodes and pools, so it is no row of its own: the first who asks has it made of those that
were loaded. A change of a node costs a look at every pool, a change of a pool a look at every node.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from gpuledger.domain.machineconfig.rows import ConfigNodeRow, ConfigPoolRow
from gpuledger.domain.machineconfig.selection import Selection, read_selection
from gpuledger.domain.table import Table

_NO_LABELS = "{}"

Label = tuple[str, str]


class Membership:
    """The pools of each node, and the nodes of each pool by name. Nodes without an object belong to none."""

    def __init__(self, nodes: Table[ConfigNodeRow], pools: Table[ConfigPoolRow]) -> None:
        self._nodes, self._pools = nodes, pools
        self._labels: dict[str, tuple[str, dict[str, str]]] = {}
        self._selections: dict[str, Selection] | None = None
        self._pools_of: dict[str, tuple[str, ...]] = {}
        self._members: dict[str, dict[str, None]] = {}
        self._sorted: dict[str, list[str]] = {}
        self._pools_by_label: dict[Label | None, list[str]] | None = None

    def pools_of(self, node: str) -> tuple[str, ...]:
        """The pools that select a node, by name."""
        self.load()
        return self._pools_of.get(node, ())

    def members(self, pool: str) -> Sequence[str]:
        """The nodes that a pool selects, by name."""
        self.load()
        found = self._sorted.get(pool)
        if found is None:
            found = self._sorted[pool] = sorted(self._members.get(pool, ()))
        return found

    def refresh_node(self, node: str) -> Iterable[str]:
        """The node's row has changed; returns the pools that it was in or is in, if these are not the same."""
        selections = self.load()
        row, before = self._nodes.get(node), self._pools_of.get(node, ())
        after: tuple[str, ...] = ()
        if row is not None and row.uid is not None and selections:
            labels = self._labels_of(row)
            candidates = self._candidates(selections, labels)
            after = tuple(sorted(name for name in candidates if selections[name].has_node(node, labels)))
        elif row is None:
            self._labels.pop(node, None)
        if before == after:
            return ()
        self._put(node, before, after)
        return (*before, *after)

    def refresh_pool(self, pool: str) -> list[str]:
        """The pool's row has changed, or is gone; returns the nodes that have joined or left it."""
        selections = self.load()
        row = self._pools.get(pool)
        selection = None if row is None else read_selection(row.definition)
        if selection == selections.get(pool):
            return []
        self._pools_by_label = None
        if selection is None:
            del selections[pool]
        else:
            selections[pool] = selection
        changed = []
        for node, one in self._nodes.rows.items():
            before = self._pools_of.get(node, ())
            is_in = selection is not None and one.uid is not None and selection.has_node(node, self._labels_of(one))
            if is_in != (pool in before):
                after = sorted((*before, pool)) if is_in else [name for name in before if name != pool]
                self._put(node, before, tuple(after))
                changed.append(node)
        return changed

    def load(self) -> dict[str, Selection]:
        """Make it of the rows as they are: before the first of them changes. Returns what each pool selects."""
        if self._selections is None:
            self._selections = {name: read_selection(row.definition) for name, row in self._pools.rows.items()}
            for node in self._nodes.rows:
                self.refresh_node(node)
        return self._selections

    def _candidates(self, selections: Mapping[str, Selection], labels: Mapping[str, str]) -> set[str]:
        """The pools that may select a node with these labels, found by the first label that each of them requires."""
        if self._pools_by_label is None:
            self._pools_by_label = {}
            for name, selection in selections.items():
                for label in _required(selection):
                    self._pools_by_label.setdefault(label, []).append(name)
        by_label = self._pools_by_label
        return {name for label in (None, *labels.items()) for name in by_label.get(label, ())}

    def _put(self, node: str, before: tuple[str, ...], after: tuple[str, ...]) -> None:
        if after:
            self._pools_of[node] = after
        else:
            del self._pools_of[node]
        for pool in before:
            if pool not in after:
                del self._members[pool][node]
                self._sorted.pop(pool, None)
        for pool in after:
            if pool not in before:
                self._members.setdefault(pool, {})[node] = None
                self._sorted.pop(pool, None)

    def _labels_of(self, row: ConfigNodeRow) -> dict[str, str]:
        text, found = self._labels.get(row.node, (_NO_LABELS, {}))
        if text != row.labels:
            found = _read(row.labels)
            self._labels[row.node] = (row.labels, found)
        return found


def _required(selection: Selection) -> Sequence[Label | None]:
    """Labels of which a pool requires one, by the first of its requirements that says so; None: it requires none."""
    if selection.nodes is None:
        return ()
    if selection.nodes.labels:
        return selection.nodes.labels[:1]
    for one in selection.nodes.expressions:
        if one.operator == "In" and not one.is_field:
            return [(one.key, value) for value in one.values]
    return (None,)


def _read(labels: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(labels)
    return found
