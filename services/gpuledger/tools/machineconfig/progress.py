"""How far a pool's rollout is, and what changed between two looks, as `gpuledger config status` shows it. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from gpuledger.tools.machineconfig.listing import UNKNOWN, node_rows, pool_row
from gpuledger.tools.machineconfig.tables import ConfigTables
from gpuledger.tools.queries.found_rows import RowDict

IN_FLIGHT: Final = ("Draining", "Applying")
FAILED: Final = "Failed"

Document = dict[str, Any]


class RolloutProgress(NamedTuple):
    """A pool's rollout: the row of the pool as `get` lists it, and those of its nodes in order of their urgency."""

    row: RowDict
    target: str | None
    nodes: list[RowDict]

    @property
    def total(self) -> int:
        """How many nodes there are."""
        return len(self.nodes)

    @property
    def updated(self) -> int:
        """How many nodes have the target, and are given back."""
        return sum(bool(one["updated"]) and one["phase"] == "Idle" for one in self.nodes)

    @property
    def in_flight(self) -> list[RowDict]:
        """The nodes that drain or apply."""
        return [one for one in self.nodes if one["phase"] in IN_FLIGHT]

    @property
    def failed(self) -> list[RowDict]:
        """The nodes whose update failed."""
        return [one for one in self.nodes if one["phase"] == FAILED]

    @property
    def waiting(self) -> list[RowDict]:
        """The nodes whose update has not begun."""
        return [one for one in self.nodes if one["phase"] == "Idle" and not one["updated"]]

    @property
    def is_done(self) -> bool:
        """Whether every node has the newest that there is to have."""
        return self.target is not None and self.row["waits_since"] is None and self.updated == self.total

    def holds(self) -> Iterator[str]:
        """Why it does not go on, or not faster, in sentences."""
        row = self.row
        if row["problem"]:
            yield f"Nothing new is rendered: {row['problem']}."
        if row["waits_since"] is not None:
            yield "An input has changed; the pool waits for further changes before it renders."
        if row["paused"] and not self.is_done:
            yield f"The pool is paused; `gpuledger config resume {row['name']}` goes on."
        conditions = row["conditions"]
        assert isinstance(conditions, list)
        for one in conditions:
            if one["type"] in ("PoolOverlap", "DrainStuck", "Degraded") and one["status"] == "True":
                yield f"{one['type']}: {one['message'] or one['reason']}"
        if self.waiting and not row["paused"] and _is_exhausted(row):
            waiting = len(self.waiting)
            who = "1 node waits" if waiting == 1 else f"{waiting} nodes wait"
            yield f"{who}: {row['unavailable']} of at most {row['max_unavailable']} are unavailable."


def _is_exhausted(row: RowDict) -> bool:
    unavailable, most = row["unavailable"], row["max_unavailable"]
    return isinstance(unavailable, int) and isinstance(most, int) and unavailable >= most


def progress_of(tables: ConfigTables, pool: str) -> RolloutProgress:
    """How far a pool is.

    Raises:
        RequestError: there is no such pool.
    """
    row = tables.pool(pool)
    return RolloutProgress(pool_row(row, tables.statuses.get(pool)), tables.target(pool), node_rows(tables, pool))


def progress_document(progress: RolloutProgress) -> Document:
    """The progress as `-o json` writes it."""
    row = progress.row
    return {
        "pool": row["name"],
        "target": progress.target,
        "pinned": row["pinned"],
        "paused": row["paused"],
        "done": progress.is_done,
        "nodes": progress.total,
        "updated": progress.updated,
        "inFlight": progress.in_flight,
        "failed": progress.failed,
        "waiting": [one["node"] for one in progress.waiting],
        "unavailable": row["unavailable"],
        "maxUnavailable": row["max_unavailable"],
        "degraded": row["degraded"] != UNKNOWN and row["degraded"] == "True",
        "holds": list(progress.holds()),
    }


def changes(before: RolloutProgress, after: RolloutProgress) -> Iterator[str]:
    """What changed from one look to the next, a sentence for each node and for the pool itself."""
    if after.target != before.target:
        yield f"{after.row['name']}: the target is {after.target} now"
    if after.row["paused"] != before.row["paused"]:
        yield f"{after.row['name']}: {'paused' if after.row['paused'] else 'goes on'}"
    was = {one["node"]: one for one in before.nodes}
    now = {one["node"]: one for one in after.nodes}
    for node in sorted(now, key=str):
        if (text := _node_change(was.get(node), now[node])) is not None:
            yield f"{node}: {text}"
    yield from (f"{node}: is no longer of this pool" for node in sorted(was.keys() - now.keys(), key=str))
    yield from (one for one in after.holds() if one not in set(before.holds()))


def _node_change(before: Mapping[str, object] | None, now: Mapping[str, object]) -> str | None:
    if before is None:
        return "is of this pool now"
    return _in_phase(before, now) if now["phase"] == before["phase"] else _new_phase(now)


def _in_phase(before: Mapping[str, object], now: Mapping[str, object]) -> str | None:
    if now["retries"] and now["retries"] != before["retries"]:
        return f"the drain has not finished, attempt {now['retries']}{_detail(now)}"
    if now["current"] != before["current"] and now["phase"] == "Idle":
        return f"has {now['current']}"
    return f"agent is {now['agent']}{_detail(now)}" if now["agent"] != before["agent"] else None


def _new_phase(now: Mapping[str, object]) -> str:
    match now["phase"]:
        case "Draining":
            return "cordoned, drains"
        case "Applying":
            return f"applies {now['desired']}"
        case "Failed":
            return f"failed{_detail(now)}"
        case _:
            return f"is {'done' if now['updated'] else 'given back'}, has {now['current']}"


def _detail(row: Mapping[str, object]) -> str:
    return f": {row['message']}" if row["message"] else ""
