"""What people have in the cluster of the figure `pools`: nodes in racks, and two pools for every rack.

Of two pools the even one is a GPUPool and the odd one a ClusterGPUPool; both select their rack's nodes and NVIDIA's
cards. One in twenty takes up to two devices of a node by itself, those of one product; all others wait for annotations.
On every node one card is annotated for each pool of the rack that waits.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from gpuledger.api.kinds import CLUSTER_GPU_POOLS, GPU_POOLS, MODULE_CONFIG, MODULE_CONFIGS, NODES, Resource
from gpuledger.api.labels import LABEL_PRODUCT, NFD_WORKER_VERSION
from gpuledger.events.device import Card
from support.inventory import NFD, card, labels

Object = dict[str, Any]

CARDS_PER_NODE = 8
POOLS_PER_RACK = 2
TAKEN_BY_ITSELF = 2
APPROVING_ONE_IN = 20
SLICES = 2
NAMESPACES = 20
MODEL = "20b5"
LABEL_RACK = "example.com/rack"
PRODUCTS = ("NVIDIA A100-SXM4-40GB", "NVIDIA A30", "NVIDIA H100-PCIe", "NVIDIA L40S", "NVIDIA L4")


class FleetPool(NamedTuple):
    """A pool; `name` is unique in the cluster, `namespace` empty for a ClusterGPUPool."""

    number: int
    name: str
    namespace: str

    @property
    def id(self) -> str:
        """What the ledger calls it."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def resource(self) -> Resource:
        """Which kind it is of."""
        return GPU_POOLS if self.namespace else CLUSTER_GPU_POOLS

    @property
    def rack(self) -> int:
        """The rack whose nodes it selects."""
        return self.number // POOLS_PER_RACK

    @property
    def approves(self) -> bool:
        """Whether it takes devices by itself."""
        return self.number % APPROVING_ONE_IN == 0


class Fleet(NamedTuple):
    """So many nodes, of eight cards each, and pools."""

    nodes: int
    pools: int

    @property
    def devices(self) -> int:
        """How many cards there are."""
        return self.nodes * CARDS_PER_NODE

    @property
    def racks(self) -> int:
        """How many racks the nodes stand in."""
        return self.pools // POOLS_PER_RACK

    def all_pools(self) -> list[FleetPool]:
        """Every pool, by its number."""
        return [_pool(number) for number in range(self.pools)]

    def rack_of(self, node: int) -> int:
        """Nodes are spread over the racks."""
        return node % self.racks

    def of_rack(self, node: int) -> Iterator[FleetPool]:
        """The pools that select the node."""
        first = self.rack_of(node) * POOLS_PER_RACK
        return (_pool(number) for number in range(first, first + POOLS_PER_RACK))

    def cards(self, node: int) -> list[Card]:
        """What the node's agent sees."""
        product = _product(self.rack_of(node))
        return [
            card(f"GPU-{node:05d}-{slot}", slot, MODEL, product=product, memory_mib=40960)
            for slot in range(CARDS_PER_NODE)
        ]

    def annotated(self, node: int) -> Iterator[tuple[int, FleetPool]]:
        """The slots that people have annotated for a pool; those before may be taken by a pool itself."""
        return ((TAKEN_BY_ITSELF + at, one) for at, one in enumerate(self.of_rack(node)) if not one.approves)

    def free_slot(self, pool: FleetPool) -> int:
        """A slot of the pool's nodes that nobody has asked for."""
        return TAKEN_BY_ITSELF + POOLS_PER_RACK + pool.number % POOLS_PER_RACK


def node_name(node: int) -> str:
    """The Node's name."""
    return f"worker-{node:05d}"


def node_object(fleet: Fleet, node: int) -> Object:
    """The Node, with what Node Feature Discovery and GPU Feature Discovery put there."""
    found = labels(*[MODEL] * CARDS_PER_NODE, gpu_product=_product(fleet.rack_of(node)).replace(" ", "-"))
    metadata = {
        "name": node_name(node),
        "labels": found | {LABEL_RACK: str(fleet.rack_of(node))},
        "annotations": {NFD_WORKER_VERSION: NFD},
    }
    return {"apiVersion": NODES.api_version, "kind": NODES.kind, "metadata": metadata}


def pool_object(pool: FleetPool) -> Object:
    """The GPUPool or ClusterGPUPool."""
    spec: Object = {
        "resource": {"unit": "Card", "slicesPerUnit": SLICES},
        "nodeSelector": {"matchLabels": {LABEL_RACK: str(pool.rack)}},
        "deviceSelector": {"include": {"pciVendors": ["10de"]}},
    }
    if pool.approves:
        product = _product(pool.rack).removeprefix("NVIDIA ").split("-")[0].lower()
        spec["resource"]["maxDevicesPerNode"] = TAKEN_BY_ITSELF
        spec["deviceAssignment"] = {
            "requireAnnotation": False,
            "autoApproveSelector": {"matchLabels": {LABEL_PRODUCT: product}},
        }
    resource, metadata = pool.resource, {"name": pool.name}
    metadata |= {"namespace": pool.namespace} if pool.namespace else {}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


def module_config() -> Object:
    """The components are others' to run: what they say is five pods a node, and nothing of what is measured."""
    off = {name: {"enabled": False} for name in ("validator", "gfd", "dcgm", "dcgmExporter")}
    settings = {"inventory": {"resyncPeriod": "30s"}, "bootstrap": off}
    return {
        "apiVersion": MODULE_CONFIGS.api_version, "kind": MODULE_CONFIGS.kind, "metadata": {"name": MODULE_CONFIG},
        "spec": {"enabled": True, "version": 1, "settings": settings},
    }  # fmt: skip


def namespaces() -> list[str]:
    """The namespaces in which there are GPUPools."""
    return [f"team-{number:02d}" for number in range(NAMESPACES)]


def _pool(number: int) -> FleetPool:
    if number % POOLS_PER_RACK:
        return FleetPool(number, f"cluster-{number:04d}", "")
    return FleetPool(number, f"pool-{number:04d}", namespaces()[number // POOLS_PER_RACK % NAMESPACES])


def _product(rack: int) -> str:
    return PRODUCTS[rack % len(PRODUCTS)]
