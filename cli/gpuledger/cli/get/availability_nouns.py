"""The columns and names of slices, their pools and claims for `gpuledger get`."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from gpuledger.cli.render import Column, Output, View
from gpuledger.domain.dra.state import Availability
from gpuledger.tools.queries.availability import claim_rows, pool_rows, slice_rows
from gpuledger.tools.queries.found_rows import RowDict

NAME = "name"

UNDECIDED = "unknown"
"""What tables show of a pool that is not complete, and whose slices agree so far."""


@dataclass(frozen=True, slots=True)
class AvailabilityNoun:
    """One kind of thing. `key` identifies a row; `name_of` is its name in `-o name`, which several rows may share.

    `has_statuses` where ResourceSliceStatuses show the rows in Kubernetes, too.
    """

    view: View
    rows: Callable[[Availability], Iterator[RowDict]]
    key: tuple[str, ...]
    name_of: Callable[[RowDict], str]
    namespaced: bool = False
    in_tables: Callable[[RowDict], RowDict] = dict
    has_statuses: bool = False

    def shown(self, rows: Iterable[RowDict], output: Output) -> list[RowDict]:
        """The rows as an output needs them: names alone, or with what only tables have."""
        if output is Output.NAME:
            return [{NAME: name} for name in dict.fromkeys(map(self.name_of, rows))]
        return [self.in_tables(row) for row in rows] if output in (Output.TABLE, Output.WIDE) else list(rows)


def _with_validity(row: RowDict) -> RowDict:
    return {**row, "valid": UNDECIDED if row["valid"] is None else row["valid"]}


def _with_slices(row: RowDict) -> RowDict:
    return {**_with_validity(row), "slices": f"{row['observedSliceCount']}/{row['resourceSliceCount']}"}


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
    in_tables=_with_validity,
    has_statuses=True,
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
    in_tables=_with_slices,
    has_statuses=True,
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
    namespaced=True,
)

AVAILABILITY_NOUNS = {"slices": SLICES, "slicepools": POOLS, "claims": CLAIMS}
