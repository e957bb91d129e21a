"""Rendering a pool's configuration, rule by rule; whole merges are in the golden files."""

import pytest

from gpuledger.api.machine_config import REFUSED_PATHS
from gpuledger.domain.machineconfig.canonical_files import CanonicalFiles, content_hash
from gpuledger.domain.machineconfig.rendering import RenderProblem, render
from gpuledger.events.machine_config import (
    FILES_MAX,
    SOURCES_MAX,
    ConfigFile,
    ConfigUnit,
    MachineConfigDefined,
    MachineConfigPoolDefined,
    MachineConfigRendered,
    pack_content,
    unpack_content,
)
from support.machine_configs import config_file, config_pool, incompressible, machine_config

POOL = config_pool()


def rendered(*configs: MachineConfigDefined, pool: MachineConfigPoolDefined = POOL) -> MachineConfigRendered:
    found = render("worker", pool, [(f"c{index}", one) for index, one in enumerate(configs)], {})
    assert isinstance(found, MachineConfigRendered), found
    return found


def problem(*configs: MachineConfigDefined) -> RenderProblem:
    found = render("worker", POOL, [(f"c{index}", one) for index, one in enumerate(configs)], {})
    assert isinstance(found, RenderProblem)
    return found


def test_the_higher_priority_wins_and_of_equal_ones_the_later_name() -> None:
    low, high = machine_config(config_file(content="low"), priority=10), machine_config(config_file(content="high"))
    assert unpack_content(rendered(high, low).files[0].content) == "high"
    first, second = machine_config(config_file(content="first")), machine_config(config_file(content="second"))
    assert unpack_content(rendered(first, second).files[0].content) == "second"


def test_the_last_one_wins_with_its_whole_entry() -> None:
    enables = machine_config(ConfigUnit(name="a.service", enabled=True, state="started"), priority=1)
    masks = machine_config(ConfigUnit(name="a.service", mask=True), priority=2)
    assert rendered(enables, masks).units == (ConfigUnit(name="a.service", mask=True),)


def test_one_that_requires_a_reboot_is_enough() -> None:
    quiet, loud = machine_config(priority=99), machine_config(reboot_required=True, priority=1)
    assert (rendered(quiet, loud).reboot_required, rendered(quiet).reboot_required) == (True, False)


def test_priorities_reasons_and_names_are_not_in_the_hash() -> None:
    one = rendered(machine_config(config_file(), priority=1, reboot_reason="x"))
    other = rendered(machine_config(), machine_config(config_file(), priority=2))
    assert one.config_hash == other.config_hash
    assert [(source.name, source.priority) for source in other.sources] == [("c1", 2), ("c0", 50)]


def test_only_selected_ones_are_merged() -> None:
    pool = config_pool(config_selector={"labels": {"pool": "a"}})
    mine, other = (
        machine_config(config_file(), labels={"pool": "a"}),
        machine_config(labels={"pool": "b"}, problems=("x",)),
    )
    assert [source.name for source in rendered(mine, other, pool=pool).sources] == ["c0"]


@pytest.mark.parametrize("fields", [{"config_selector": None}, {"problems": ("odd",)}])
def test_a_pool_without_a_selector_or_with_a_problem_selects_nothing(fields: dict[str, object]) -> None:
    assert rendered(machine_config(config_file()), pool=config_pool(**fields)).sources == ()


def test_a_name_is_taken_by_another_hash_only() -> None:
    configs = [("a", machine_config(config_file()))]
    first = render("worker", POOL, configs, {})
    assert isinstance(first, MachineConfigRendered)
    assert first.name == f"rendered-worker-{first.config_hash[:10]}"
    for taken, suffix in (
        ({first.name: first.config_hash}, ""),
        ({first.name: "other"}, "-1"),
        ({first.name: "other", f"{first.name}-1": first.config_hash}, "-1"),
        ({first.name: "other", f"{first.name}-1": "another"}, "-2"),
    ):
        again = render("worker", POOL, configs, taken)
        assert again == first.model_copy(update={"name": first.name + suffix})


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (machine_config(problems=("spec.files[0].mode is 'x'",)), "spec.files[0].mode is 'x'"),
        (machine_config(config_file("/etc/b"), config_file(f"{REFUSED_PATHS[0]}/a")), "spec.files[1].path"),
        (machine_config(config_file(owner="root")), "spec.files[0].owner 'root'"),
        (machine_config(config_file(mode=644)), "spec.files[0].mode 644"),
        (machine_config(config_file(), config_file(content="b")), "'/etc/a.conf' more than once"),
        (machine_config(ConfigUnit(name="kubelet.service")), "spec.systemd.units[0].name"),
        (machine_config(ConfigUnit(name="a.timer"), ConfigUnit(name="a.timer")), "'a.timer' more than once"),
    ],
)
def test_one_refused_config_keeps_the_pool_from_being_rendered(config: MachineConfigDefined, words: str) -> None:
    found = problem(machine_config(config_file("/etc/fine")), config)
    assert found.config == "c1"
    assert words in str(found)
    assert str(found).startswith("MachineConfig c1: ")


def test_a_file_and_a_folder_of_two_configs_contradict_each_other() -> None:
    inner, outer = machine_config(config_file("/etc/a/b")), machine_config(config_file("/etc/a"))
    assert "/etc/a/b is in /etc/a" in problem(inner, outer).message
    gone = machine_config(config_file("/etc/a", state="absent"))
    assert len(rendered(inner, gone).files) == 2


def test_more_than_an_event_holds() -> None:
    small = [machine_config(*(config_file(f"/etc/{n}/{m}", "") for m in range(600))) for n in range(2)]
    assert f"{FILES_MAX} at most" in problem(*small).message
    assert f"{SOURCES_MAX} at most" in problem(*[machine_config()] * (SOURCES_MAX + 1)).message
    large = [machine_config(config_file(f"/etc/{n}", incompressible(n, 400_000))) for n in range(3)]
    assert "the ledger" in problem(*large).message


def test_more_than_an_object_holds() -> None:
    large = [machine_config(config_file(f"/etc/{n}", "a" * 700_000)) for n in range(2)]
    assert "one object" in problem(*large).message


def test_a_content_that_is_not_what_its_hash_says() -> None:
    wrong = ConfigFile(path="/etc/a", content=pack_content("b"), hash=content_hash("c"))
    assert "not what its hash says" in problem(machine_config(wrong)).message


def test_what_is_kept_of_files_is_bounded_and_changes_nothing() -> None:
    files = [config_file(f"/etc/{n}", f"{n}" * 100) for n in range(10)]
    kept, nothing = CanonicalFiles(500), CanonicalFiles(0)
    for one in (*files, *reversed(files)):
        assert kept.of(one) == nothing.of(one)
        assert kept.size <= 500
    assert nothing.size == 0


def test_an_unchanged_file_is_not_unpacked_again() -> None:
    kept, one = CanonicalFiles(), config_file()
    before = kept.of(one)
    assert kept.of(one.model_copy(update={"content": "cannot be unpacked"})) is before
    with pytest.raises(ValueError, match="base64"):
        CanonicalFiles().of(one.model_copy(update={"content": "cannot be unpacked"}))


def test_files_that_differ_in_anything_are_kept_apart() -> None:
    kept, one = CanonicalFiles(), config_file()
    others = [
        config_file("/etc/b.conf"), config_file(content="b"), config_file(mode=0), config_file(owner="0:0"),
        config_file(state="absent"),
    ]  # fmt: skip
    assert [kept.of(file) for file in (one, *others)] == [CanonicalFiles().of(file) for file in (one, *others)]
