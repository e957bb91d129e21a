"""The rewrite of containers' resources at admission: `gpu` becomes core and ratio, spread over so many GPUs. Pure.

Nodes report core, ratio and memory, so a scheduler and a kubelet find nothing of the name `gpu` to compare with. What a
pod asks for is what its containers ask for at the same time, counted as Kubernetes counts, and it stays what it was.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from gpuledger.api.sharing import GPU, GPU_CORE, GPU_MEMORY_RATIO, GPU_SHARED, NVIDIA_GPU, WHOLE
from gpuledger.domain.pools.requests import ContainerRequest, units_held
from gpuledger.domain.sharing.model import Amounts, Refusal
from gpuledger.domain.sharing.requests import count_of, problem_of, request_of, type_of


class ContainerAmounts(NamedTuple):
    """What a container asks for, by short name, and how it runs; init containers come first, in their order."""

    name: str
    amounts: Amounts
    is_init: bool = False
    is_sidecar: bool = False


def admitted(amounts: Amounts) -> Amounts | Refusal:
    """What is to stand in place of the amounts of a container that is alone in its pod; amounts of 0 are left out."""
    found = admitted_pod([ContainerAmounts("", amounts)])
    return found if isinstance(found, Refusal) else found[0]


def admitted_pod(containers: Sequence[ContainerAmounts]) -> tuple[Amounts, ...] | Refusal:
    """What is to stand in place of the amounts of each container.

    `gpu` and `nvidia.com/gpu` are replaced. Containers with GPUs get the number of theirs as `gpu.shared`, the resource
    by which a device plugin can give them memory; all or none of them, and none where the numbers add up to another one
    than the pod means without. The Refusal names the container, if one of them alone is wrong already.
    """
    for one in containers:
        # The rewrite would hide what goes together in one container and what does not.
        if _is_replaced(one.amounts) and sum(map(_is_of_gpus, one.amounts.items())) > 1:
            return _refused(f"in the container {one.name}, {problem_of(one.amounts)}")
    split = tuple(_split(one.amounts) for one in containers)
    request = request_of(_held(containers, split))
    if isinstance(request, Refusal):
        return _refused(_located(str(problem_of(_held(containers, split))), containers))
    numbered = tuple(map(_numbered, split))
    return numbered if request_of(_held(containers, numbered)) == request else split


def _split(amounts: Amounts) -> Amounts:
    kept = {resource: amount for resource, amount in amounts.items() if amount}
    percent = kept.pop(GPU, 0) + kept.pop(NVIDIA_GPU, 0) * WHOLE
    return {GPU_CORE: percent, GPU_MEMORY_RATIO: percent} | kept if percent else kept


def _numbered(amounts: Amounts) -> Amounts:
    gpus = dict(filter(_is_of_gpus, amounts.items()))
    return {**amounts, GPU_SHARED: count_of(gpus)} if gpus and GPU_SHARED not in gpus else amounts


def _held(containers: Sequence[ContainerAmounts], after: Sequence[Amounts]) -> Amounts:
    return units_held(
        ContainerRequest(Counter(amounts), one.is_init, one.is_sidecar)
        for one, amounts in zip(containers, after, strict=True)
    )


def _located(problem: str, containers: Sequence[ContainerAmounts]) -> str:
    """The problem with the container that has it by itself; else it is one of all of them together.

    A container without a name stands for amounts alone.
    """
    if len(containers) == 1 and not containers[0].name:
        return problem
    for one in containers:
        if (of_container := problem_of(one.amounts)) is not None:
            return f"in the container {one.name}, {of_container}"
    return f"in all containers together, {problem}" if len(containers) > 1 else problem


def _is_replaced(amounts: Amounts) -> bool:
    return bool(amounts.get(GPU) or amounts.get(NVIDIA_GPU))


def _is_of_gpus(item: tuple[str, int]) -> bool:
    resource, amount = item
    return bool(amount) and type_of(resource) == GPU


def _refused(problem: str) -> Refusal:
    return Refusal(f"Invalid request: {problem}.", unresolvable=True)
