"""How far the drain of a node is, as rows show it."""

import orjson

from gpuledger.domain.maintenance.rows import NodeDrain
from gpuledger.domain.maintenance.state import Maintenance
from gpuledger.events.maintenance import OwnedDrain
from gpuledger.tools.queries.found_rows import RowDict


def drain_status(state: Maintenance, node: str) -> RowDict:
    """The columns about the drain of a node."""
    row = state.drain.get(node)
    if row is None:
        return {"drain": None, "pods_left": None, "drain_since": None, "pods": []}
    begun = min(one.since for one in owned_drains(row))
    word = drain_word(row.progress) if row.progress else "Pending"
    pods = [f"{pod} ({waits})" for pod, waits in left_pods(row)]
    left = row.pods_left if row.progress else None
    return {"drain": word, "pods_left": left, "drain_since": begun, "pods": pods}


def drain_word(progress: str) -> str:
    """How far a drain is, in one word."""
    return "".join(part.capitalize() for part in progress.split("-"))


def owned_drains(row: NodeDrain) -> list[OwnedDrain]:
    """What each owner wants drained."""
    return [OwnedDrain.model_validate(one) for one in orjson.loads(row.drains)]


def left_pods(row: NodeDrain) -> tuple[tuple[str, str], ...]:
    """The first pods that are left, as `namespace/name`, each with what it waits for."""
    return tuple((f"{one['namespace']}/{one['pod']}", one["state"]) for one in orjson.loads(row.pods))
