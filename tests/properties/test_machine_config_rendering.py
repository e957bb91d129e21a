"""Rendering machine configurations: the same inputs give the same bytes, and the last MachineConfig wins."""

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.machineconfig.canonical_files import checked_content
from gpuledger.domain.machineconfig.config_hash import config_hash
from gpuledger.domain.machineconfig.rendered_document import desired_config, rendered_document
from gpuledger.domain.machineconfig.rendered_object import read_object
from gpuledger.domain.machineconfig.rendering import RenderProblem, render
from gpuledger.domain.machineconfig.validation import path_problem
from gpuledger.events.machine_config import (
    ConfigFile,
    ConfigUnit,
    MachineConfigDefined,
    MachineConfigRendered,
    pack_content,
    unpack_content,
)
from support.machine_configs import config_file, config_pool, machine_config

POOL = config_pool(config_selector={"labels": {"pool": "a"}})
PATHS = st.sampled_from(["/etc/a", "/etc/a.conf", "/etc/b/c", "/opt/x/y", "/srv/ä"])
CONTENTS = st.text(max_size=20)
FILES = st.builds(
    lambda path, content, mode, state: config_file(path, content, mode=mode, state=state),
    PATHS, CONTENTS, st.sampled_from([0o644, 0o600, 0]), st.sampled_from(["present", "absent"]),
)  # fmt: skip
UNITS = st.builds(
    ConfigUnit,
    name=st.sampled_from(["a.service", "b.timer"]),
    enabled=st.sampled_from([None, True, False]),
    state=st.sampled_from([None, "started", "reloaded"]),
    mask=st.booleans(),
)


def _config(
    files: list[ConfigFile], units: list[ConfigUnit], priority: int, reboot: bool, pool: str
) -> MachineConfigDefined:
    return machine_config(*files, *units, priority=priority, reboot_required=reboot, labels={"pool": pool})


CONFIGS = st.builds(
    _config,
    st.lists(FILES, max_size=4, unique_by=lambda one: one.path),
    st.lists(UNITS, max_size=2, unique_by=lambda one: one.name),
    st.integers(0, 3),
    st.booleans(),
    st.sampled_from("ab"),
)
NAMED = st.dictionaries(st.sampled_from("abcdef"), CONFIGS, max_size=6).map(lambda found: list(found.items()))


def rendered(configs: list[tuple[str, MachineConfigDefined]]) -> MachineConfigRendered:
    found = render("worker", POOL, configs, {})
    assert isinstance(found, MachineConfigRendered), found
    return found


@given(NAMED.flatmap(lambda configs: st.tuples(st.just(configs), st.permutations(configs))))
def test_the_order_of_inputs_does_not_matter(
    orders: tuple[list[tuple[str, MachineConfigDefined]], list[tuple[str, MachineConfigDefined]]],
) -> None:
    one, other = orders
    assert rendered(one).model_dump_json() == rendered(other).model_dump_json()


@given(NAMED)
def test_the_last_selected_one_wins_for_every_path_and_unit(configs: list[tuple[str, MachineConfigDefined]]) -> None:
    found = rendered(configs)
    mine = sorted(
        ((one.priority, name, one) for name, one in configs if one.labels == {"pool": "a"}), key=lambda item: item[:2]
    )
    for path in {file.path for *_, one in mine for file in one.files}:
        winner = [file for *_, one in mine for file in one.files if file.path == path][-1]
        assert winner in found.files
    assert [one.path for one in found.files] == sorted({file.path for *_, one in mine for file in one.files})
    for name in {unit.name for *_, one in mine for unit in one.units}:
        assert [unit for *_, one in mine for unit in one.units if unit.name == name][-1] in found.units
    assert found.reboot_required == any(one.reboot_required for *_, one in mine)
    assert [source.name for source in found.sources] == [name for _, name, _ in mine]


@given(NAMED)
def test_the_object_has_what_the_hash_is_of(configs: list[tuple[str, MachineConfigDefined]]) -> None:
    found = rendered(configs)
    read = read_object(rendered_document("worker", found, POOL))
    assert read == desired_config("worker", found, POOL)
    assert found.config_hash == config_hash(read.files, read.units, reboot_required=read.reboot_required)
    assert found.name == f"rendered-worker-{found.revision}"


@given(NAMED, NAMED)
def test_equal_hashes_are_equal_contents(
    configs: list[tuple[str, MachineConfigDefined]], others: list[tuple[str, MachineConfigDefined]]
) -> None:
    one, other = rendered(configs), rendered(others)
    same = [
        [(file.path, checked_content(file), file.mode, file.owner, file.state) for file in found.files]
        + [*found.units, found.reboot_required]
        for found in (one, other)
    ]
    assert (one.config_hash == other.config_hash) == (same[0] == same[1])


@given(NAMED, CONFIGS, st.sampled_from(["/etc/kubernetes/x", "/boot", "/etc/../bin/x", "etc/x"]))
def test_nothing_refused_is_ever_rendered(
    configs: list[tuple[str, MachineConfigDefined]], other: MachineConfigDefined, path: str
) -> None:
    bad = other.model_copy(update={"files": (config_file(path),), "labels": {"pool": "a"}})
    assert render("worker", POOL, [*configs, ("bad", bad)], {}).__class__ is RenderProblem


@given(st.lists(st.sampled_from(["", ".", "..", "etc", "boot", "lib", "var", "kubelet", "a"]), max_size=5))
def test_a_path_that_is_taken_stays_where_it_says(parts: list[str]) -> None:
    path = "/" + "/".join(parts)
    if path_problem(path) is None:
        assert parts
        assert not {"", ".", ".."} & set(parts)
        assert parts[0] != "boot"
        assert parts[:3] != ["var", "lib", "kubelet"]


@given(st.text(max_size=200))
def test_contents_are_packed_and_unpacked(content: str) -> None:
    assert unpack_content(pack_content(content)) == content
