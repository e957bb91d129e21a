"""Files of declared devices: in whatever order and under whatever names they come, the same devices count."""

from collections.abc import Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.agent.declared_devices import declared
from gpuledger.api.sharing import DEFAULT_NAMES
from support.declared import file_of, fpga

KINDS = ("fpga", "npu")
DEVICES = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 9), st.booleans()), max_size=12, unique_by=lambda one: one[:2]
)
FILES = st.lists(st.one_of(DEVICES, st.just(None)), max_size=6)


def content(devices: Sequence[tuple[str, int, bool]] | None) -> bytes:
    """A file with these devices; None: one that cannot be read."""
    if devices is None:
        return b"[{"
    return file_of(
        *(fpga(minor, type=kind, health=fit, resources={f"kooperator/{kind}": 100}) for kind, minor, fit in devices)
    )


@given(FILES, st.randoms(use_true_random=False))
def test_the_order_of_files_does_not_matter(given_files: list[list[tuple[str, int, bool]] | None], rng: Random) -> None:
    files = {f"{at}.json": content(one) for at, one in enumerate(given_files)}
    shuffled = list(files.items())
    rng.shuffle(shuffled)
    assert declared(dict(shuffled), DEFAULT_NAMES) == declared(files, DEFAULT_NAMES)


@given(FILES)
def test_every_file_counts_as_a_whole_or_is_named_with_a_reason(
    given_files: list[list[tuple[str, int, bool]] | None],
) -> None:
    files = {f"{at}.json": one for at, one in enumerate(given_files)}
    found = declared({name: content(one) for name, one in files.items()}, DEFAULT_NAMES)
    left_out = {one.file for one in found.left_out}
    counted = [device for name, one in files.items() if name not in left_out for device in one or ()]
    assert sorted((one.type, one.minor, one.healthy) for one in found.devices) == sorted(counted)
    assert len({device[:2] for device in counted}) == len(counted), "no device counts twice"
    assert all(one.reason for one in found.left_out)
    assert {name for name, one in files.items() if one is None} <= left_out


@given(DEVICES, st.data())
def test_how_devices_are_divided_among_files_does_not_matter(
    devices: list[tuple[str, int, bool]], data: st.DataObject
) -> None:
    files: dict[str, list[tuple[str, int, bool]]] = {}
    for one in devices:
        files.setdefault(data.draw(st.sampled_from(("a.json", "b.json", "c.yaml"))), []).append(one)
    divided = declared({name: content(one) for name, one in files.items()}, DEFAULT_NAMES)
    assert divided == declared({"all.json": content(devices)}, DEFAULT_NAMES)
