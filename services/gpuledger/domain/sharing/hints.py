"""What a pod's annotations say about its shared devices, beyond how much it asks for (seed 002). Pure.

An annotation that cannot be read refuses the pod: without its hint it would run where its owner does not want it to.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from gpuledger.api.sharing import GPU
from gpuledger.domain.sharing.documents import amount_at, choice_at, fields_at, json_object, list_at, text_at
from gpuledger.domain.sharing.model import Hint, JointAllocate, PartitionSpec, Refusal, Scope
from gpuledger.domain.sharing.selectors import read_selector
from gpuledger.events.sharing import TYPES_MAX

APPLY_FOR_ALL: Final = "ApplyForAll"
"""The amount on every device of the type that the selector selects."""

REQUESTS_AS_COUNT: Final = "RequestsAsCount"
"""The amount is a number of devices."""

DEVICE_LEVEL: Final = "DeviceLevel"
"""The devices are the pod's alone."""

SAME_PCIE: Final = "SamePCIe"
RESTRICTED: Final = "Restricted"
BEST_EFFORT: Final = "BestEffort"

HINT: Final = "device-allocate-hint"
JOINT: Final = "device-joint-allocate"
PARTITION: Final = "gpu-partition-spec"
"""Annotations, as refusals name them: without the domain of the installation."""

_HINT_FIELDS: Final = ("selector", "vfSelector", "allocateStrategy", "exclusivePolicy", "requiredTopologyScope")

_Read = TypeVar("_Read")


class PodHints(NamedTuple):
    """All that a pod's annotations say about its shared devices; hints go by type of device."""

    by_type: Mapping[str, Hint] = {}
    joint: JointAllocate | None = None
    partition: PartitionSpec | None = None

    def of(self, kind: str) -> Hint:
        """The hint for one type of device."""
        return self.by_type.get(kind, _NO_HINT)


_NO_HINT: Final = Hint()
NO_HINTS: Final = PodHints()


def hints_of(hint: str | None, joint: str | None, partition: str | None) -> PodHints | Refusal:
    """What the texts of the three annotations say; None stands for an annotation that the pod does not have.

    The Refusal says which annotation is wrong, and what is wrong with it.
    """
    try:
        return PodHints(
            _from(HINT, hint, read_hints) or {},
            _from(JOINT, joint, read_joint),
            _from(PARTITION, partition, read_partition_spec),
        )
    except ValueError as error:
        return Refusal(str(error), unresolvable=True)


def read_hints(text: str) -> Mapping[str, Hint]:
    """The hints by type of device. Raises ValueError."""
    given = json_object(text)
    if len(given) > TYPES_MAX:
        raise ValueError(f"it has {len(given)} types of devices; {TYPES_MAX} at most are allowed")
    return {kind: _hint(kind, value) for kind, value in given.items()}


def read_joint(text: str) -> JointAllocate:
    """Which types of devices are to be near each other. Raises ValueError."""
    given = fields_at(json_object(text), "it", ("deviceTypes", "requiredScope"))
    types = tuple(text_at(one, where) for one, where in list_at(given.get("deviceTypes"), "deviceTypes", TYPES_MAX))
    if not types:
        raise ValueError('deviceTypes is empty; name types of devices there, as in ["gpu", "rdma"]')
    return JointAllocate(types, choice_at(given.get("requiredScope"), "requiredScope", (SAME_PCIE,)) is not None)


def read_partition_spec(text: str) -> PartitionSpec:
    """Which partition the GPUs have to be; BestEffort where no policy is given. Raises ValueError."""
    given = fields_at(json_object(text), "it", ("allocatePolicy", "ringBusBandwidth"))
    policy = choice_at(given.get("allocatePolicy"), "allocatePolicy", (RESTRICTED, BEST_EFFORT))
    bandwidth = given.get("ringBusBandwidth")
    return PartitionSpec(policy == RESTRICTED, None if bandwidth is None else amount_at(bandwidth, "ringBusBandwidth"))


def _from(annotation: str, text: str | None, read: Callable[[str], _Read]) -> _Read | None:
    if text is None:
        return None
    try:
        return read(text)
    except ValueError as error:
        raise ValueError(f"The annotation {annotation} is invalid: {error}.") from error


def _hint(kind: str, value: object) -> Hint:
    given = fields_at(value, kind, _HINT_FIELDS)
    strategy = choice_at(given.get("allocateStrategy"), f"{kind}.allocateStrategy", (APPLY_FOR_ALL, REQUESTS_AS_COUNT))
    if kind == GPU and strategy is not None:
        raise ValueError(f"{kind}.allocateStrategy is {strategy!r}; it is for other types of devices only")
    scope = choice_at(given.get("requiredTopologyScope"), f"{kind}.requiredTopologyScope", tuple(Scope))
    selector, vf_selector = given.get("selector"), given.get("vfSelector")
    return Hint(
        None if selector is None else read_selector(selector, f"{kind}.selector"),
        None if vf_selector is None else read_selector(vf_selector, f"{kind}.vfSelector"),
        strategy,
        choice_at(given.get("exclusivePolicy"), f"{kind}.exclusivePolicy", (DEVICE_LEVEL,)),
        None if scope is None else Scope(scope),
    )
