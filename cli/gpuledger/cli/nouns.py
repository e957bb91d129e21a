"""What `get` can show: for each kind its columns, its table, and where its past is.

The same columns come from the tables of now, from the history functions (`--at`) and from a fold of the log
(`--as-recorded`), so that the three can be compared.
"""

from dataclasses import dataclass
from typing import Any

from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.render import Column, View
from gpuledger.domain import devices, nodes, sources, workloads
from gpuledger.domain.table import TableSpec


@dataclass(frozen=True, slots=True)
class Noun:
    """One kind of thing. `at` names the function that gives its rows at a time, where there is one."""

    view: View
    projection: str
    spec: TableSpec[Any]
    order: tuple[str, ...]
    at: str | None
    hidden: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a user sees, in their order."""
        return tuple(name for name in self.spec.columns if name not in self.hidden)


def _gpus(milli: object) -> str:
    assert isinstance(milli, int)
    return f"{milli / 1000:g}"


DEVICES = Noun(
    View(
        "device",
        (
            Column("device"),
            Column("state"),
            Column("slot"),
            Column("since", "in_service_since"),
            Column("lives", right=True),
            Column("failures", right=True),
            Column("model"),
            Column("first seen", "first_seen_at", wide=True),
            Column("removed", "removed_at", wide=True),
            Column("last failed", "last_failed_at", wide=True),
            Column("places", right=True, wide=True),
            Column("serial", wide=True),
            Column("uuid", wide=True),
        ),
        "device",
    ),
    "devices",
    devices.DEVICE,
    ("device",),
    "devices_at",
    aliases=("device", "dev", "gpu", "gpus"),
)

SLOTS = Noun(
    View(
        "slot",
        (
            Column("slot"),
            Column("node"),
            Column("index", "slot_index", right=True),
            Column("device"),
            Column("occupants", right=True),
            Column("lives", right=True),
            Column("first seen", "first_seen_at", wide=True),
            Column("vacated", "vacated_at", wide=True),
        ),
        "slot",
    ),
    "devices",
    devices.SLOT,
    ("slot",),
    "slots_at",
    aliases=("slot",),
)

NODES = Noun(
    View(
        "node",
        (
            Column("node"),
            Column("present"),
            Column("gpus", "gpu_count", right=True),
            Column("model", "gpu_model"),
            Column("slots", right=True),
            Column("cpu milli", right=True, wide=True),
            Column("memory mib", right=True, wide=True),
            Column("first seen", "first_seen_at"),
        ),
        "node",
    ),
    "nodes",
    nodes.NODE,
    ("node",),
    "nodes_at",
    aliases=("node", "no"),
)

WORKLOADS = Noun(
    View(
        "workload",
        (
            Column("workload"),
            Column("phase"),
            Column("gpus", "gpu_milli", right=True, format=_gpus),
            Column("owner"),
            Column("class", "workload_class"),
            Column("submitted", "submitted_at"),
            Column("scheduled", "scheduled_at"),
            Column("ended", "ended_at"),
            Column("outcome"),
            Column("node", wide=True),
            Column("cpu milli", right=True, wide=True),
            Column("memory mib", right=True, wide=True),
        ),
        "workload",
    ),
    "workloads",
    workloads.WORKLOAD,
    ("workload",),
    "workloads_at",
    hidden=("submitted_position", "scheduled_position", "ended_position", "source", "epoch"),
    aliases=("workload", "wl"),
)

FAILURES = Noun(
    View(
        "failure",
        (
            Column("failed", "failed_at"),
            Column("device"),
            Column("kind"),
            Column("slot"),
            Column("message"),
            Column("source", wide=True),
            Column("event id", wide=True),
        ),
        "event_id",
    ),
    "devices",
    devices.FAILURE,
    ("failed_at", "device", "event_id"),
    "failures_at",
    hidden=("epoch", "number"),
    aliases=("failure",),
)

CONTRADICTIONS = Noun(
    View(
        "contradiction",
        (
            Column("kind"),
            Column("subject"),
            Column("first"),
            Column("second"),
            Column("from", "valid_from"),
            Column("to", "valid_to"),
            Column("first began", "first_at", wide=True),
            Column("second began", "second_at", wide=True),
        ),
        "subject",
    ),
    "devices",
    devices.CONTRADICTION,
    ("kind", "subject", "valid_from", "first", "second"),
    "contradictions_at",
    aliases=("contradiction",),
)

SOURCES = Noun(
    View(
        "source",
        (
            Column("source"),
            Column("epoch", format=lambda epoch: str(epoch)[:12]),
            Column("events", right=True),
            Column("missing", right=True),
            Column("duplicates", right=True),
            Column("last", "last_number", right=True),
            Column("first time"),
            Column("last time"),
            Column("completed", "completed_at"),
            Column("first recorded", "first_recorded_at", wide=True),
            Column("last recorded", "last_recorded_at", wide=True),
        ),
        "source",
    ),
    "sources",
    sources.SOURCE,
    ("source", "epoch"),
    None,
    aliases=("source",),
)

NOUNS = {
    "devices": DEVICES,
    "nodes": NODES,
    "slots": SLOTS,
    "workloads": WORKLOADS,
    "failures": FAILURES,
    "sources": SOURCES,
    "contradictions": CONTRADICTIONS,
}


def noun_of(kind: str) -> Noun:
    """The noun of a name or alias.

    Raises:
        CliError: there is none.
    """
    for name, noun in NOUNS.items():
        if kind.lower() in (name, *noun.aliases):
            return noun
    raise CliError(f"There is no kind {kind!r}", f"Choose from {', '.join(NOUNS)}", ExitCode.USAGE)
