"""Properties of requests for shared devices: amounts are kept, and exactly what the table allows is accepted."""

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.api.sharing import SharingNames
from gpuledger.domain.sharing.admission import ContainerAmounts, admitted, admitted_pod
from gpuledger.domain.sharing.annotation import read_allocation, write_allocation
from gpuledger.domain.sharing.model import Allocated, Allocation, PodRequest, Refusal, VirtualFunction
from gpuledger.domain.sharing.requests import normalised, request_of

AMOUNTS_MAX = 2**40
percentages = st.one_of(
    st.integers(0, 250), st.integers(0, 9).map(lambda one: one * 100), st.integers(0, 40).map(lambda one: one * 20)
)
amounts = st.fixed_dictionaries(
    {},
    optional={
        "nvidia.com/gpu": st.integers(0, 9),
        "gpu": percentages,
        "gpu-core": percentages,
        "gpu-memory": st.integers(0, AMOUNTS_MAX),
        "gpu-memory-ratio": percentages,
        "gpu.shared": st.integers(0, 9),
        "rdma": percentages,
        "fpga": percentages,
    },
)


def is_allowed(given: Mapping[str, int]) -> bool:
    """The validation table, written down once more."""
    has = {name for name, amount in given.items() if amount > 0}
    if not all(given.get(one, 0) <= 100 or given[one] % 100 == 0 for one in ("rdma", "fpga", "gpu")):
        return False
    gpus = has - {"rdma", "fpga"}
    if not gpus or gpus in ({"nvidia.com/gpu"}, {"gpu"}):
        return True
    if gpus - {"gpu-core", "gpu.shared"} not in ({"gpu-memory"}, {"gpu-memory-ratio"}):
        return False
    core, ratio, number = (given.get(one, 0) for one in ("gpu-core", "gpu-memory-ratio", "gpu.shared"))
    if not number:
        return all(one <= 100 or one % 100 == 0 for one in (core, ratio))
    fits = all(one % number == 0 and one <= 100 * number for one in (core, ratio))
    return fits and not 0 < given.get("gpu-memory", 0) < number


@given(amounts)
def test_a_request_is_accepted_iff_the_table_allows_it(given: dict[str, int]) -> None:
    assert isinstance(request_of(given), Refusal) is not is_allowed(given)


@given(amounts)
def test_amounts_per_device_add_up_to_the_whole(given: dict[str, int]) -> None:
    request, by_type = request_of(given), normalised(given)
    if not isinstance(request, PodRequest) or isinstance(by_type, Refusal):
        return
    for one in request.types:
        for resource, amount in one.per_device.items():
            whole = by_type[one.type][resource]
            lost = whole - amount * one.number
            # Bytes, and a core beside a ratio that says the number, need not divide; nobody gets more than asked.
            assert 0 <= lost < one.number
            assert lost == 0 or resource == "gpu-memory" or (resource == "gpu-core" and "gpu.shared" not in given)


@given(amounts)
def test_the_rewrite_means_the_same(given: dict[str, int]) -> None:
    after = admitted(given)
    if isinstance(after, Refusal):
        assert not is_allowed(given)
        return
    assert request_of(after) == request_of(given)
    assert admitted(after) == after


@given(st.lists(amounts, max_size=3))
def test_the_rewrite_of_several_containers_means_what_they_ask_for_together(given: list[dict[str, int]]) -> None:
    before = request_of(dict(sum(map(Counter, given), Counter())))
    after = admitted_pod([ContainerAmounts(f"c{index}", one) for index, one in enumerate(given)])
    if isinstance(after, Refusal):
        assert isinstance(before, Refusal)
    elif not isinstance(before, Refusal):
        assert request_of(dict(sum(map(Counter, after), Counter()))) == before


texts = st.text(min_size=1, max_size=8).filter(lambda one: "\0" not in one and "/" not in one)
functions = st.builds(VirtualFunction, st.integers(-1, 9), texts)
allocated = st.builds(
    Allocated,
    st.integers(0, 15),
    st.dictionaries(st.sampled_from(["gpu-core", "gpu-memory", "rdma"]), st.integers(1, AMOUNTS_MAX)),
    st.lists(functions, max_size=2).map(tuple),
    st.none() | texts,
)
allocations = st.dictionaries(texts, st.lists(allocated, min_size=1, max_size=3).map(tuple), max_size=3)


@given(allocations, st.sampled_from(["kooperator", "koordinator.sh"]))
def test_an_annotation_is_read_as_it_was_written(allocation: Allocation, domain: str) -> None:
    names = SharingNames(domain)
    in_order = {kind: tuple(sorted(given, key=lambda one: one.minor)) for kind, given in allocation.items()}
    assert read_allocation(write_allocation(allocation, {}, names), names) == in_order
