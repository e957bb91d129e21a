"""What a pod's resources mean: which combinations are allowed, how many devices they ask for, and how much of each.

The rules are those of seed 002 as Koordinator's scheduler applies them: percentages above 100 mean whole devices, so
they are multiples of 100; memory is in bytes and never goes with a ratio of memory, since each follows from the other
on the chosen GPU. Every other type of device follows the rule of `rdma`, so a new one needs no code here. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from gpuledger.api.sharing import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED, NVIDIA_GPU, WHOLE
from gpuledger.domain.sharing.hints import APPLY_FOR_ALL, DEVICE_LEVEL, NO_HINTS, REQUESTS_AS_COUNT, PodHints
from gpuledger.domain.sharing.model import Amounts, Device, Hint, PodRequest, Refusal, TypeRequest
from gpuledger.domain.sharing.selectors import selects

GPU_RESOURCES: Final = (NVIDIA_GPU, GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED)
"""All resources that ask for GPUs."""

_SPREAD: Final = tuple(
    map(
        frozenset,
        ({GPU_MEMORY}, {GPU_MEMORY_RATIO}, {GPU_CORE, GPU_MEMORY}, {GPU_CORE, GPU_MEMORY_RATIO}),
    )
)
COMBINATIONS: Final = frozenset(
    (frozenset({NVIDIA_GPU}), frozenset({GPU}), *_SPREAD, *(one | {GPU_SHARED} for one in _SPREAD))
)
"""The resources of GPUs that one pod may have together."""

_PERCENTAGES: Final = (GPU_CORE, GPU_MEMORY_RATIO)
_ALLOWED: Final = (
    f"allowed are {NVIDIA_GPU} or {GPU} alone, {GPU_MEMORY} or {GPU_MEMORY_RATIO}, each with {GPU_CORE} or without; "
    f"{GPU_SHARED} may come with the latter two"
)


def type_of(resource: str) -> str:
    """The type of device that a resource, by its short name, asks for."""
    return GPU if resource in GPU_RESOURCES else resource


def request_of(amounts: Amounts, hints: PodHints = NO_HINTS) -> PodRequest | Refusal | None:
    """What the amounts of a whole pod, by short name, ask for; None: no device at all.

    A Refusal is for every node, so it is unresolvable. GPUs come first among the types.
    """
    found = normalised(amounts)
    if isinstance(found, Refusal):
        return found
    types = tuple(_type_request(kind, found[kind], hints.of(kind)) for kind in sorted(found, key=_gpus_first))
    return PodRequest(types, hints.joint, hints.partition) if types else None


def normalised(amounts: Amounts) -> Mapping[str, Amounts] | Refusal:
    """The same by type of device, in the resources that devices have: `gpu: 50` is core 50 and ratio 50.

    Amounts of 0 are left out.
    """
    problem = problem_of(amounts)
    if problem is not None:
        return _refused(problem)
    return {kind: _split(given) for kind, given in _by_type(amounts).items()}


def problem_of(amounts: Amounts) -> str | None:
    """What is wrong with amounts, and what is allowed, as a part of a sentence; None: nothing."""
    negative = next((resource for resource, amount in amounts.items() if amount < 0), None)
    if negative is not None:
        return f"{negative}: {amounts[negative]} is negative; leave it out or ask for more than 0"
    problems = (
        _problem_of_gpus(given) if kind == GPU else _problem_of_type(kind, given[kind])
        for kind, given in _by_type(amounts).items()
    )
    return next(filter(None, problems), None)


def on_devices(request: TypeRequest, devices: Iterable[Device]) -> TypeRequest | Refusal:
    """The same request with the number of devices that it means on a node.

    Only with ApplyForAll it depends on the node: then it is that of the devices that the selector selects, healthy or
    not, since a device that is left out would break what the hint promises.
    """
    if request.hint.allocate_strategy != APPLY_FOR_ALL:
        return request
    selector = request.hint.selector
    number = sum(selector is None or selects(selector, one.labels) for one in devices)
    if not number:
        return _refused(f"the selector of {request.type} selects no device of the node")
    return request._replace(number=number)


def count_of(gpus: Amounts) -> int:
    """The number of GPUs that normalised amounts mean."""
    ratio = gpus.get(GPU_MEMORY_RATIO, 0)
    return gpus.get(GPU_SHARED) or _whole_devices(ratio) or 1


def _by_type(amounts: Amounts) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for resource, amount in amounts.items():
        if amount:
            found.setdefault(type_of(resource), {})[resource] = amount
    return found


def _problem_of_gpus(given: Amounts) -> str | None:
    if frozenset(given) not in COMBINATIONS:
        return f"{_named(given)}; {_ALLOWED}"
    if GPU_SHARED in given:
        return _problem_of_spread(given, given[GPU_SHARED])
    percentages = (one for one in (GPU, *_PERCENTAGES) if one in given)
    return next(filter(None, (_problem_of_percentage(one, given[one]) for one in percentages)), None)


def _named(given: Iterable[str]) -> str:
    """What is wrong with a combination."""
    names = sorted(given)
    return f"{names[0]} does not stand alone" if len(names) == 1 else f"{', '.join(names)} do not go together"


def _problem_of_spread(given: Amounts, number: int) -> str | None:
    for resource in _PERCENTAGES:
        amount = given.get(resource, 0)
        if amount % number:
            return f"{resource}: {amount} cannot be divided by {GPU_SHARED}: {number}; ask for a multiple of {number}"
        if amount // number > WHOLE:
            return f"{resource}: {amount} is more than {WHOLE} on each of {number} GPUs; the most is {number * WHOLE}"
    if 0 < given.get(GPU_MEMORY, 0) < number:
        return f"{GPU_MEMORY}: {given[GPU_MEMORY]} is less than a byte on each of {number} GPUs"
    return None


def _problem_of_type(kind: str, amount: int) -> str | None:
    if kind.startswith(("gpu-", "gpu.")):
        return f"{kind} is no resource of GPUs; {_ALLOWED}"
    return _problem_of_percentage(kind, amount)


def _problem_of_percentage(resource: str, amount: int) -> str | None:
    if amount <= WHOLE or amount % WHOLE == 0:
        return None
    return f"{resource}: {amount} is neither a share of one device (1 to {WHOLE}) nor whole ones (multiples of {WHOLE})"


def _split(given: Amounts) -> Amounts:
    """Core and ratio in place of `gpu` and `nvidia.com/gpu`."""
    percent = given.get(GPU, 0) or given.get(NVIDIA_GPU, 0) * WHOLE
    return {GPU_CORE: percent, GPU_MEMORY_RATIO: percent} if percent else given


def _type_request(kind: str, given: Amounts, hint: Hint) -> TypeRequest:
    if kind != GPU:
        number, amount = _numbered(given[kind], hint)
        return TypeRequest(kind, number, {kind: amount}, shared=False, hint=hint)
    number = count_of(given)
    shares = {resource: amount // number for resource, amount in given.items() if resource != GPU_SHARED}
    per_device = {resource: share for resource, share in shares.items() if share}
    shared = GPU_MEMORY in per_device or per_device[GPU_MEMORY_RATIO] < WHOLE
    return TypeRequest(kind, number, per_device, shared, hint)


def _numbered(amount: int, hint: Hint) -> tuple[int, int]:
    """How many devices other than GPUs, and how much of each."""
    if hint.allocate_strategy == APPLY_FOR_ALL:
        return 1, amount
    if hint.allocate_strategy == REQUESTS_AS_COUNT:
        return amount, WHOLE if hint.exclusive_policy == DEVICE_LEVEL else 1
    whole = _whole_devices(amount)
    return (whole, WHOLE) if whole else (1, amount)


def _whole_devices(percent: int) -> int:
    """How many whole devices a percentage above 100 means; 0 where it means a part of one, or one."""
    return percent // WHOLE if percent > WHOLE and percent % WHOLE == 0 else 0


def _gpus_first(kind: str) -> tuple[bool, str]:
    return kind != GPU, kind


def _refused(reason: str) -> Refusal:
    return Refusal(f"Invalid request: {reason}.", unresolvable=True)
