"""What `get` shows of dynamic resource allocation: slices, pools and claims, evaluated as the allocator would.

The rows follow from an `Availability` alone, so that now, a past time and what was known then are shown alike. Those of
pools bear the field names of upstream's ResourcePoolStatusRequest, and ours where it has none.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import orjson

from gpuledger.cli.render import Column, Output, View
from gpuledger.domain.dra.device_state import AvailabilityState
from gpuledger.domain.dra.evaluation import PoolEvaluation
from gpuledger.domain.dra.fold import Availability, views
from gpuledger.domain.dra.objects import PoolId
from gpuledger.domain.dra.pool_index import EVERYWHERE
from gpuledger.domain.dra.rows import DeviceAllocation
from gpuledger.domain.dra.status import conditions_of, overdrawn_errors, vanished_errors

RowDict = Mapping[str, object]

NAME = "name"


@dataclass(frozen=True, slots=True)
class AvailabilityNoun:
    """One kind of thing. `key` tells rows apart; `name_of` names a row in `-o name`, and several may have one name."""

    view: View
    rows: Callable[[Availability], Iterator[RowDict]]
    key: tuple[str, ...]
    name_of: Callable[[RowDict], str]
    aliases: tuple[str, ...] = ()
    namespaced: bool = False
    in_tables: Callable[[RowDict], RowDict] = dict

    def shown(self, rows: Iterable[RowDict], output: Output) -> list[RowDict]:
        """The rows as an output needs them: names alone, or with what only tables have."""
        if output is Output.NAME:
            return [{NAME: name} for name in dict.fromkeys(map(self.name_of, rows))]
        return [self.in_tables(row) for row in rows] if output in (Output.TABLE, Output.WIDE) else list(rows)

    def bare(self, name: str) -> str:
        """A name as people give it: alone, or behind its kind."""
        return name.removeprefix(f"{self.view.kind}/")


def slice_rows(state: Availability) -> Iterator[RowDict]:
    """A row for each slice, its devices counted as its status counts them."""
    for name, row in sorted(state.slice.rows.items()):
        evaluation = state.evaluation(PoolId(row.driver, row.pool), row.node or EVERYWHERE)
        availabilities = evaluation.availabilities[row.name].values()
        states = [one.state for one in availabilities]
        allocated, available = sum(one.use.is_used for one in availabilities), states.count(AvailabilityState.AVAILABLE)
        yield {
            NAME: name,
            "driver": row.driver,
            "pool": row.pool,
            "node": row.node,
            "total": len(states),
            "allocated": allocated,
            "available": available,
            "partial": states.count(AvailabilityState.PARTIAL),
            "unavailable": len(states) - allocated - available,
            "generation": row.pool_generation,
            "complete": evaluation.view.is_complete,
            "valid": evaluation.view.is_valid,
            "published_at": row.published_at,
        }


def pool_rows(state: Availability) -> Iterator[RowDict]:
    """A row for each view of each pool: from a node with slices of its own, or from the whole cluster."""
    for pool, node in sorted(views(state)):
        evaluation = state.evaluation(pool, node)
        seen, counts, total = evaluation.view, evaluation.counts, evaluation.counts.total()
        available = counts[AvailabilityState.AVAILABLE]
        yield {
            "driver": pool.driver,
            "poolName": pool.name,
            "nodeName": node or None,
            "generation": seen.generation,
            "resourceSliceCount": seen.expected,
            "observedSliceCount": seen.observed,
            "totalDevices": total,
            "allocatedDevices": evaluation.allocated,
            "availableDevices": available,
            "partiallyAllocatedDevices": counts[AvailabilityState.PARTIAL],
            "unavailableDevices": total - evaluation.allocated - available,
            "complete": seen.is_complete,
            "valid": seen.is_valid,
            "validationError": _validation_error(evaluation),
            "warnings": _warnings(state, pool, evaluation),
        }


def claim_rows(state: Availability) -> Iterator[RowDict]:
    """A row for each claim, with what it holds."""
    for claim, row in sorted(state.claim.rows.items()):
        namespace, _, name = str(claim).partition("/")
        held = sorted(state.held(row.claim))
        yield {
            "namespace": namespace,
            NAME: name,
            "phase": row.phase,
            "devices": len(held),
            "requests": row.requests,
            "owner": row.owner,
            "since": row.since,
            "uid": row.uid,
            "held": [_holding(one) for one in held],
        }


def _validation_error(evaluation: PoolEvaluation) -> str | None:
    """Why the pool gives nothing, where its slices are the reason."""
    failed = [message for _, status, _, message in conditions_of(evaluation.view) if not status]
    return " ".join(failed) or None


def _warnings(state: Availability, pool: PoolId, evaluation: PoolEvaluation) -> list[str]:
    """What is amiss and keeps nobody from the pool."""
    return [*vanished_errors(state.index(pool).vanished(), redacted=False), *overdrawn_errors(evaluation)]


def _holding(row: DeviceAllocation) -> RowDict:
    return {
        "request": row.request,
        "driver": row.driver,
        "pool": row.pool,
        "device": row.device,
        "share": row.share or None,
        "consumed": orjson.loads(row.consumed) if row.consumed else None,
        "admin_access": row.admin_access,
    }


def _with_slices(row: RowDict) -> RowDict:
    return {**row, "slices": f"{row['observedSliceCount']}/{row['resourceSliceCount']}"}


def _pool_name(row: RowDict) -> str:
    return f"{row['driver']}/{row['poolName']}"


def _claim_name(row: RowDict) -> str:
    return f"{row['namespace']}/{row[NAME]}"


def _places(held: object) -> str:
    assert isinstance(held, list)
    return ",".join(map(_place, held))


def _place(one: Mapping[str, object]) -> str:
    return f"{one['driver']}/{one['pool']}/{one['device']}"


SLICES = AvailabilityNoun(
    View(
        "slice",
        (
            Column("name"),
            Column("driver"),
            Column("pool"),
            Column("node"),
            Column("total", right=True),
            Column("allocated", right=True),
            Column("available", right=True),
            Column("partial", right=True),
            Column("unavailable", right=True, wide=True),
            Column("generation", right=True, wide=True),
            Column("complete", wide=True),
            Column("valid", wide=True),
            Column("published", "published_at", wide=True),
        ),
        NAME,
    ),
    slice_rows,
    (NAME,),
    lambda row: str(row[NAME]),
    aliases=("slice",),
)

POOLS = AvailabilityNoun(
    View(
        "slicepool",
        (
            Column("driver"),
            Column("pool", "poolName"),
            Column("node", "nodeName"),
            Column("generation", right=True),
            Column("slices", right=True),
            Column("total", "totalDevices", right=True),
            Column("allocated", "allocatedDevices", right=True),
            Column("available", "availableDevices", right=True),
            Column("partial", "partiallyAllocatedDevices", right=True),
            Column("unavailable", "unavailableDevices", right=True),
            Column("complete"),
            Column("valid"),
            Column("error", "validationError", wide=True),
            Column("warnings", wide=True),
        ),
        NAME,
    ),
    pool_rows,
    ("driver", "poolName", "nodeName"),
    _pool_name,
    aliases=("slicepool",),
    in_tables=_with_slices,
)

CLAIMS = AvailabilityNoun(
    View(
        "claim",
        (
            Column("namespace"),
            Column("name"),
            Column("phase"),
            Column("devices", right=True),
            Column("requests", right=True),
            Column("owner"),
            Column("since"),
            Column("held", wide=True, format=_places),
        ),
        NAME,
    ),
    claim_rows,
    ("namespace", NAME),
    _claim_name,
    aliases=("claim",),
    namespaced=True,
)

AVAILABILITY_NOUNS = {"slices": SLICES, "slicepools": POOLS, "claims": CLAIMS}
