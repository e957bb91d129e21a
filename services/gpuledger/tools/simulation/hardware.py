"""The models of GPUs and nodes that can be simulated. Pure data.

PCI ids are those of the PCI ID database, product names and memory those that NVML reports, compute capabilities those
of NVIDIA's CUDA GPUs page, MIG profiles and their placements those of the MIG user guide.
"""

from typing import Final, NamedTuple

from gpuledger.api.mig_profile import RESOURCE_PREFIX, MigProfile

GPU_RESOURCE: Final = "nvidia.com/gpu"
NVIDIA_PREFIX: Final = "nvidia.com/"
MIG_RESOURCE_PREFIX: Final = f"{NVIDIA_PREFIX}{RESOURCE_PREFIX}"
WHOLE_MILLI: Final = 1000


class Partition(NamedTuple):
    """A MIG instance: its profile, compute slices of seven, memory as GFD labels it, and multiprocessors."""

    profile: MigProfile
    slices: int
    memory_mib: int
    multiprocessors: int

    @property
    def resource(self) -> str:
        """The extended resource that pods request."""
        return NVIDIA_PREFIX + self.profile.resource

    @property
    def gpu_milli(self) -> int:
        """Its part of the card in thousandths, by compute slices, rounded down."""
        return WHOLE_MILLI * self.slices // 7


class PciFunction(NamedTuple):
    """A PCI device that is no GPU: how many a node has, and what NFD shows of it."""

    number: int
    vendor: str
    device: str
    pci_class: str


class Model(NamedTuple):
    """A model of card, and the machine that it comes in. Memory in MiB; `buses` are the PCI buses of its slots."""

    product: str
    family: str
    machine: str
    pci_device: str
    pci_class: str
    memory_mib: int
    compute: tuple[int, int]
    precision: tuple[str, ...]
    mig_profiles: tuple[str, ...]
    multiprocessors: int
    buses: tuple[int, ...]
    others: tuple[PciFunction, ...]


class NodeProfile(NamedTuple):
    """The make-up of a node. `layouts` are the partitions of its cards in turn; none means whole cards."""

    model: Model
    layouts: tuple[tuple[Partition, ...], ...] = ()


_FURTHER_BUSES = (0x21, 0x2A, 0x61, 0x6A, 0xA1, 0xAA, 0xE1, 0xEA)

H200: Final = Model(
    "NVIDIA H200",
    "hopper",
    "HGX-H200",
    "2335",
    "0302",
    143771,
    (9, 0),
    ("fp32", "fp16", "bf16", "fp8"),
    ("1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
    132,
    (0x19, 0x3B, 0x4C, 0x5D, 0x9B, 0xBB, 0xCB, 0xDB, *_FURTHER_BUSES),
    (PciFunction(4, "10de", "22a3", "0680"), PciFunction(8, "15b3", "1021", "0207")),
)
A100: Final = Model(
    "NVIDIA A100-SXM4-80GB",
    "ampere",
    "HGX-A100",
    "20b2",
    "0302",
    81920,
    (8, 0),
    ("fp32", "fp16", "bf16"),
    ("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    108,
    (0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD, *_FURTHER_BUSES),
    (PciFunction(6, "10de", "1af1", "0680"), PciFunction(8, "15b3", "101b", "0207")),
)
T4: Final = Model(
    "Tesla T4",
    "turing",
    "PowerEdge-R740",
    "1eb8",
    "0302",
    15360,
    (7, 5),
    ("fp32", "fp16"),
    (),
    40,
    (0x3B, 0x3C, 0x5E, 0x5F, 0xAF, 0xB0, 0xD8, 0xD9, *_FURTHER_BUSES),
    (PciFunction(2, "8086", "1572", "0200"),),
)

_SEVENTH = Partition(MigProfile(1, 10), 1, 9728, 14)
_HALF = Partition(MigProfile(3, 40), 3, 40192, 42)

PROFILES: Final = {
    "h200": (NodeProfile(H200),),
    "a100": (NodeProfile(A100),),
    "mig-a100": (NodeProfile(A100, ((_SEVENTH,) * 7, (_HALF,) * 2)),),
    "t4": (NodeProfile(T4),),
    "mixed": (
        NodeProfile(H200),
        NodeProfile(A100),
        NodeProfile(A100, ((_SEVENTH,) * 7, (_HALF,) * 2)),
        NodeProfile(T4),
    ),
}
"""The values of `--fleet profile=`, each with the profiles of nodes in turn."""

DRIVER_VERSION: Final = "570.133.20"
CUDA_VERSION: Final = "12.8"
KERNEL_VERSION: Final = "6.8.0-60-generic"
OS_ID, OS_VERSION_ID, OS_NAME = "ubuntu", "24.04", "Ubuntu 24.04.2 LTS"
KERNEL_MODULES: Final = ("nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_uvm")
NFD_VERSION: Final = "v0.17.3"
KUBELET_VERSION: Final = "v1.34.1"
CONTAINER_RUNTIME: Final = "containerd://2.1.4"
