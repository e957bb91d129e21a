"""The sentences of an explanation of claims: for each request, and for all of them. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gpuledger.domain.dra.constraints import UNSELECTED, Mismatch
from gpuledger.domain.dra.device_state import UnavailableReason
from gpuledger.domain.dra.placement import Disagreement, Placement, Supply
from gpuledger.tools.explain.dra import ClaimAnswer, Explanation, OptionAnswer, RequestAnswer

WORDS: Final[Mapping[UnavailableReason | Mismatch, str]] = {
    Mismatch.UNREACHABLE: "out of reach",
    UnavailableReason.TAKEN: "taken",
    UnavailableReason.CAPACITY: "without enough capacity",
    UnavailableReason.OUTDATED: "of an outdated generation",
    UnavailableReason.INCOMPLETE: "in incomplete pools",
    UnavailableReason.INVALID: "in invalid pools",
    UnavailableReason.TAINTED: "tainted",
    UnavailableReason.COUNTERS: "without enough shared counters",
    Mismatch.SELECTOR: "not selected",
    Mismatch.SELECTOR_FAILS: "on which a selector fails",
}
"""The words for devices with each obstacle, in the order of sentences."""

NODES_UNKNOWN: Final = "No labels of nodes could be read, so devices were matched to nodes by name alone."
ONLY_DEVICES: Final = "Only devices were checked; the scheduler decides whether the pod fits the node otherwise."
NOT_ALL_TRIED: Final = "Not every combination of devices was tried, so it may still be possible."
NOWHERE: Final = "no node can use all the claims that the pod already has"
FAILING: Final = (
    "A selector fails on some devices. They count as not selected, and the scheduler gives up on a node as soon as it "
    "evaluates one of them: test for an attribute before using it."
)

Most = Mapping[tuple[str, str], tuple[Supply, str]]
"""By claim and label what a single node has at most, and that node."""


def answer_words(explanation: Explanation, moment: str) -> str:
    """The answer in one sentence; `moment` is `now`, or when in the past."""
    found = explanation.together
    if found.allocated is not None:
        return _possible(found, moment)
    if problems := [one.problem for one in explanation.claims if one.problem]:
        return "; ".join(problems)
    if not found.nodes:
        return NOWHERE
    most = most_of(found)
    short = [
        request_words(claim, request, most)
        for claim in explanation.claims
        for request in claim.requests
        if all(_is_short(claim, option, most) for option in request.options)
    ]
    return "; ".join(short) or _not_together(found)


def request_words(claim: ClaimAnswer, request: RequestAnswer, most: Most) -> str:
    """The sentence for one request."""
    if [one.label for one in request.options] == [request.name]:
        return f"request {request.name}: {option_words(claim, request.options[0], most)}"
    every = "; ".join(f"{one.wish.name}: {option_words(claim, one, most)}" for one in request.options)
    return f"request {request.name}, the first available of {len(request.options)}: {every}"


def option_words(claim: ClaimAnswer, option: OptionAnswer, most: Most) -> str:
    """The sentence for one alternative, without its name."""
    is_exact = option.wish.mode == "ExactCount"
    requested = f"{_devices(option.wish.count)} requested" if is_exact else "all devices requested"
    if option.problem:
        return f"{requested}, and {option.problem}"
    every = option.candidates
    matching = [one for one in every if one.matches]
    if not matching:
        failing = sum(one.constraints[0].kind is Mismatch.SELECTOR_FAILS for one in every)
        offered = f"none of {len(every)} matches" if every else "none is offered"
        return f"{requested}, {offered}{f' (a selector fails on {failing})' if failing else ''}"
    free = sum(one.is_free for one in matching)
    where = _on_one_node(claim, option, free, most)
    return f"{requested}, {free} available{_colon(reasons_words(tally(option)))}{where}"


def tally(option: OptionAnswer) -> Counter[UnavailableReason | Mismatch]:
    """How many matching devices are not available, by the most informative reason."""
    return Counter(one.constraints[0].kind for one in option.candidates if one.matches and not one.is_free)


def reasons_words(counts: Mapping[UnavailableReason | Mismatch, int]) -> str:
    """How many devices have which obstacle."""
    return ", ".join(f"{counts[kind]} {words}" for kind, words in WORDS.items() if counts.get(kind))


def most_of(found: Placement) -> Most:
    """What a single node has at most, by claim and label."""
    return {(one.claim, one.label): (one, node) for one, node in found.most}


def disagreement_words(one: Disagreement) -> str:
    """The violated constraint, and the values of the devices."""
    constraint = one.constraint
    is_match = constraint.match_attribute is not None
    kind = "matchAttribute" if is_match else "distinctAttribute"
    values = "; ".join(
        f"{label} {', '.join(f'{count} with {_value(value)}' for value, count in counts) or 'none'}"
        for label, counts in one.values
    )
    return f"{kind} {constraint.match_attribute or constraint.distinct_attribute} ({values})"


def notes_of(explanation: Explanation) -> Iterator[str]:
    """The limits of the answer, above all where it is not exact."""
    every = [one for claim in explanation.claims for request in claim.requests for one in request.options]
    kinds = {one.constraints[0].kind for option in every for one in option.candidates if one.constraints}
    if Mismatch.SELECTOR_FAILS in kinds & UNSELECTED:
        yield FAILING
    if explanation.together.allocated is not None:
        yield ONLY_DEVICES
    if not explanation.together.is_decided:
        yield NOT_ALL_TRIED
    if not explanation.knows_nodes:
        yield NODES_UNKNOWN


def _possible(found: Placement, moment: str) -> str:
    where = f" on node {found.node}" if found.node else ""
    given = ", ".join(
        f"{one.label} gets {one.candidate.pool}/{one.candidate.device.name}" for one in found.allocated or ()
    )
    could = "could be allocated now" if moment == "now" else f"could have been allocated {moment}"
    return f"it {could}{where}{_colon(given)}"


def _not_together(found: Placement) -> str:
    where = f"node {found.node}" if found.node else "a node"
    if found.disagreements:
        return f"{where} has devices enough, and no set of them meets {_joined(found.disagreements)}"
    if found.is_scarce:
        return f"{where} has enough for each request, and not for all: what one takes is missing for another"
    if not found.is_decided:
        return f"no way was found; {where} was tried among others"
    closest = ", ".join(f"{one.label} {one.available} of {one.requested}" for one in found.best)
    return f"no node has enough for all requests; {where} comes closest{_colon(closest)}"


def _joined(disagreements: Iterable[Disagreement]) -> str:
    return " and ".join(map(disagreement_words, disagreements))


def _is_short(claim: ClaimAnswer, option: OptionAnswer, most: Most) -> bool:
    limit = most.get((claim.claim, option.label))
    return bool(option.problem) or limit is None or limit[0].available < max(limit[0].requested, 1)


def _on_one_node(claim: ClaimAnswer, option: OptionAnswer, free: int, most: Most) -> str:
    """The limit of a single node, if no node has as many devices as all nodes have."""
    limit = most.get((claim.claim, option.label))
    if limit is None or not free:
        return ""
    if option.wish.mode == "All":
        return "" if limit[0].available else ", and how many all are is not known while a pool is incomplete or invalid"
    if free < option.wish.count or limit[0].available >= option.wish.count:
        return ""
    return (
        f", and no more than {limit[0].available} of them on one node{f' ({limit[1]})' if limit[0].available else ''}"
    )


def _devices(count: int) -> str:
    return "1 device" if count == 1 else f"{count} devices"


def _colon(text: str) -> str:
    return f": {text}" if text else ""


def _value(value: object) -> str:
    return "no value" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def allocated_words(allocation: Sequence[Mapping[str, Any]]) -> str:
    """The sentence for a claim that has its devices."""
    if not allocation:
        return "it is allocated, and no devices were needed"
    since = min(one["since"] for one in allocation)
    devices = ", ".join(f"{one['request']} has {one['driver']}/{one['pool']}/{one['device']}" for one in allocation)
    return f"it is allocated since {since:%Y-%m-%dT%H:%M:%SZ}: {devices}"
