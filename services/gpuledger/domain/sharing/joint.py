"""Devices near the ones that were chosen first: NICs at the PCIe switches of a pod's GPUs (joint allocation). Pure.

Several devices that were chosen first are not reconsidered: if the NICs do not fit, the node is refused, though other
GPUs might have had some (Koordinator does the same; see the vectors of sharing, Choice of devices).
"""

from collections.abc import Iterable, Sequence

from gpuledger.api.sharing import GPU
from gpuledger.domain.sharing.candidates import FittingDevice
from gpuledger.domain.sharing.hints import APPLY_FOR_ALL
from gpuledger.domain.sharing.model import JointAllocate, PodRequest, TypeRequest


def in_order(request: PodRequest) -> Sequence[TypeRequest]:
    """The types in the order in which they are decided: the leading one of the joint types before all others."""
    if request.joint is None:
        return request.types
    first = leading(request.joint)
    return sorted(request.types, key=lambda one: one.type != first)


def leading(joint: JointAllocate) -> str:
    """The type by whose devices those of the other joint types go: GPUs, or else the first one."""
    return GPU if GPU in joint.types else joint.types[0]


def is_joint(request: PodRequest, asked: TypeRequest) -> bool:
    """Whether the type's devices go by those of the leading joint type, of which the pod asks for some."""
    joint = request.joint
    return (
        joint is not None
        and asked.type in joint.types
        and asked.type != leading(joint)
        and asked.hint.allocate_strategy != APPLY_FOR_ALL
        and request.of(leading(joint)) is not None
    )


def must_lead(request: PodRequest, asked: TypeRequest) -> bool:
    """Whether the switches of the type's devices have to give devices of other types (SamePCIe)."""
    rule = request.joint
    return rule is not None and rule.same_pcie and asked.type == leading(rule)


def switches_of(devices: Iterable[FittingDevice]) -> list[str]:
    """The PCIe switches of devices, each once, as far as they are known."""
    return sorted({one.switch for one in devices if one.switch is not None})


def near(asked: TypeRequest, order: Sequence[FittingDevice], switches: Sequence[str]) -> list[FittingDevice]:
    """The first candidates: as many as are asked for, and more where more of the switches have one.

    Each gives the whole amount. `order` has those of `by_switch`, as many as are asked for at least.
    """
    at_switches = {one.switch for one in order} & set(switches)
    return list(order[: max(asked.number, len(at_switches))])


def same_switches(chosen: Iterable[FittingDevice], leaders: Iterable[FittingDevice]) -> bool:
    """Whether these are at all switches of the leading type's devices, and at no other (SamePCIe)."""
    switches = {one.switch for one in leaders}
    return None not in switches and {one.switch for one in chosen} == switches


def by_switch(order: Sequence[FittingDevice], switches: Sequence[str]) -> list[FittingDevice]:
    """The same candidates in rounds: one device of each of these switches a round, and the others at the end.

    Within a round, and among the others, the order stays.
    """
    rounds: dict[str, int] = dict.fromkeys(switches, 0)
    numbered = []
    for one in order:
        if one.switch in rounds:
            numbered.append((rounds[one.switch], one))
            rounds[one.switch] += 1
        else:
            numbered.append((len(order), one))
    return [one for _, one in sorted(numbered, key=lambda pair: pair[0])]
