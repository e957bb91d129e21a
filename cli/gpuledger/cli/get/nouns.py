"""The kinds that `get` can show: those of the ledger with their columns and tables, and those of Kubernetes.

The same columns come from the tables of now, from the history functions (`--at`) and from a fold of the log
(`--as-recorded`), so that the three can be compared. Of kinds whose rows have to be computed only the words are here;
their columns are in `availability_nouns`, which is imported when somebody asks for one. A Kubernetes kind has the
columns that its API server gives.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from gpuledger.api.kinds import CLUSTER_GPU_POOLS, GPU_DEVICES, GPU_NODE_STATES, GPU_POOLS, NODE_FEATURES
from gpuledger.api.kinds import NODES as KUBE_NODES
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.get.config_nouns import CONFIG_NOUNS
from gpuledger.cli.get.incident_view import INCIDENT_VIEW
from gpuledger.cli.get.noun import KubeNoun, Noun
from gpuledger.cli.get.sharing_nouns import GPUS, SHARES
from gpuledger.cli.render import Column, View
from gpuledger.domain.devices import fold as devices
from gpuledger.domain.devices import nodes
from gpuledger.domain.health.rows import INCIDENT
from gpuledger.domain.maintenance import rows as maintenance
from gpuledger.domain.sources import fold as sources
from gpuledger.domain.workloads import allocations
from gpuledger.domain.workloads import fold as workloads
from gpuledger.tools.queries.pool_name import PoolName

if TYPE_CHECKING:
    from gpuledger.cli.get.availability_nouns import AvailabilityNoun


class Named(Protocol):
    """Anything with aliases."""

    @property
    def aliases(self) -> tuple[str, ...]:
        """The other words."""
        ...


N = TypeVar("N", bound=Named)


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
    aliases=("device", "dev"),
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
            Column("declared slots", "slots", right=True),
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
            Column("epoch", format=lambda epoch: str(epoch)[:12] or "-"),
            Column("events", right=True),
            Column("missing", right=True),
            Column("duplicates", right=True),
            Column("rejected", right=True),
            Column("unknown", right=True),
            Column("last", "last_number", right=True),
            Column("first time"),
            Column("last time"),
            Column("completed", "completed_at"),
            Column("over limits", "limited_at"),
            Column("first recorded", "first_recorded_at", wide=True),
            Column("last recorded", "last_recorded_at", wide=True),
            Column("taken", right=True, wide=True),
        ),
        "source",
    ),
    "sources",
    sources.SOURCE,
    ("source", "epoch"),
    None,
    aliases=("source",),
)

ALLOCATIONS = Noun(
    View(
        "allocation",
        (
            Column("node"),
            Column("namespace"),
            Column("pod"),
            Column("container"),
            Column("resource"),
            Column("device"),
            Column("slice", right=True),
            Column("since"),
            Column("claim", wide=True),
            Column("driver", wide=True),
            Column("pool", wide=True),
        ),
        "allocation",
    ),
    "allocations",
    allocations.ALLOCATION,
    ("node", "namespace", "pod", "container", "unit"),
    "container_allocations_at",
    aliases=("allocation", "alloc"),
    narrowed_by=("node", "namespace"),
)

INCIDENTS = Noun(
    INCIDENT_VIEW,
    "incidents",
    INCIDENT,
    ("opened_at", "incident"),
    "incidents_at",
    hidden=("scope", "opened_position", "recorded_at"),
    aliases=("incident", "inc"),
    narrowed_by=("node", "device"),
    ends="ended_at",
)


def _listed(texts: object) -> str:
    assert isinstance(texts, list)
    return ",".join(texts)


MAINTENANCE = Noun(
    View(
        "maintenance",
        (
            Column("node"),
            Column("owner"),
            Column("reason"),
            Column("requested", "requested_at"),
            Column("expires", "expires_at"),
            Column("cordon"),
            Column("state"),
            Column("since", "settled_at"),
            Column("drain"),
            Column("pods left", "pods_left"),
            Column("drain since", "drain_since"),
            Column("devices", wide=True, format=_listed),
            Column("pods", wide=True, format=_listed),
            Column("taints", wide=True, format=_listed),
            Column("labels", wide=True, format=_listed),
            Column("message", wide=True),
            Column("detail", wide=True),
        ),
        "node",
        "maintenance",
    ),
    "maintenance",
    maintenance.MAINTENANCE_REQUEST,
    ("node", "owner"),
    None,
    aliases=("maintenances",),
)
"""Its rows are computed from several tables."""

NOUNS = {
    "devices": DEVICES,
    "nodes": NODES,
    "slots": SLOTS,
    "workloads": WORKLOADS,
    "failures": FAILURES,
    "sources": SOURCES,
    "contradictions": CONTRADICTIONS,
    "allocations": ALLOCATIONS,
    "incidents": INCIDENTS,
    "gpus": GPUS,
    "shares": SHARES,
}


CLUSTER_POOLS = KubeNoun(CLUSTER_GPU_POOLS, ("clustergpupool", "cgpool", CLUSTER_GPU_POOLS.full_name))

KUBE_NOUNS = {
    "gpudevices": KubeNoun(GPU_DEVICES, ("gpudevice", "gpudev", GPU_DEVICES.full_name)),
    "gpunodestates": KubeNoun(GPU_NODE_STATES, ("gpunodestate", "gpunode", GPU_NODE_STATES.full_name)),
    "pools": KubeNoun(GPU_POOLS, ("pool",), (CLUSTER_POOLS,)),
    "gpupools": KubeNoun(GPU_POOLS, ("gpupool", "gpool", GPU_POOLS.full_name)),
    "clustergpupools": CLUSTER_POOLS,
    "nodefeatures": KubeNoun(NODE_FEATURES, ("nodefeature", "nf", NODE_FEATURES.full_name)),
    "nodes": KubeNoun(KUBE_NODES, ("node", "no")),
}
"""The Kubernetes kinds. `nodes` are those of the ledger without --kube; `pools` are those of both kinds."""

COMPUTED: Final = {"slices": ("slice",), "slicepools": ("slicepool",), "claims": ("claim",)}
"""The kinds of `availability_nouns`, with their other words."""

OF_SEVERAL_TABLES: Final = {"maintenance": MAINTENANCE, **CONFIG_NOUNS}
"""Kinds of the ledger whose rows are no rows of one table, so that nothing but `get` knows them."""

POOL_KINDS = ("pools", "gpupools", "clustergpupools")

KINDS = tuple(dict.fromkeys((*NOUNS, *COMPUTED, *OF_SEVERAL_TABLES, *KUBE_NOUNS)))
"""Every kind, for those who choose one."""


def noun_of(kind: str, choices: Iterable[str] = NOUNS) -> Noun:
    """The ledger's noun of a name or alias.

    Raises:
        CliError: there is none; the error lists `choices`.
    """
    noun = _named(kind, NOUNS)
    if noun is None:
        raise _unknown(kind, choices)
    return noun


def noun_to_get(kind: str, *, kube: bool = False) -> "Noun | AvailabilityNoun | KubeNoun":
    """The noun of a name or alias; with `kube` that of Kubernetes, where both have it.

    Raises:
        CliError: there is none.
    """
    in_kube = _named(kind, KUBE_NOUNS)
    if in_kube is not None and (kube or in_kube.resource is not KUBE_NODES):
        return in_kube
    if kube:
        raise _unknown(kind, KUBE_NOUNS)
    noun = _named(kind, NOUNS) or _named(kind, OF_SEVERAL_TABLES) or _computed(kind)
    if noun is None:
        raise _unknown(kind, KINDS)
    return noun


def _computed(kind: str) -> "AvailabilityNoun | None":
    name = next((name for name, aliases in COMPUTED.items() if kind.lower() in (name, *aliases)), None)
    if name is None:
        return None
    from gpuledger.cli.get.availability_nouns import AVAILABILITY_NOUNS  # noqa: PLC0415 - with all rules of slices

    return AVAILABILITY_NOUNS[name]


def pool_name(kind: str, name: str, namespace: str | None = None) -> PoolName | None:
    """The pool of a name, if `kind` is a kind of pool, else None. The name may be `<namespace>/<name>`."""
    noun = _named(kind, {one: KUBE_NOUNS[one] for one in POOL_KINDS})
    if noun is None:
        return None
    within, _, bare = noun.bare(name).rpartition("/")
    return PoolName(bare, namespace or within or None, None if noun.beside else not noun.resource.namespaced)


def _named(kind: str, nouns: Mapping[str, N]) -> N | None:
    return next((noun for name, noun in nouns.items() if kind.lower() in (name, *noun.aliases)), None)


def _unknown(kind: str, kinds: Iterable[str]) -> CliError:
    return CliError(f"There is no kind {kind!r}", f"Choose from {', '.join(kinds)}", ExitCode.USAGE)
