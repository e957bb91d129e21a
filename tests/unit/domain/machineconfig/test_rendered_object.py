"""RenderedMachineConfigs as objects: what is written is read again, and what was changed on the way is not applied."""

import subprocess
import sys
from copy import deepcopy
from typing import Any

import pytest

from gpuledger.domain.machineconfig.rendered_document import desired_config, rendered_document
from gpuledger.domain.machineconfig.rendered_object import RenderedObjectError, read_object
from gpuledger.domain.machineconfig.rendering import render
from gpuledger.events.machine_config import ConfigUnit, MachineConfigRendered
from support.machine_configs import config_file, config_pool, machine_config

POOL = config_pool(reboot_strategy="IfRequired", reboot_min_interval_s=60)


@pytest.fixture
def rendered() -> MachineConfigRendered:
    configs = [
        ("a", machine_config(config_file(), ConfigUnit(name="a.service", enabled=True), priority=1)),
        (
            "b",
            machine_config(config_file("/etc/b", "ä<b>"), ConfigUnit(name="b.timer", mask=True), reboot_required=True),
        ),
    ]
    found = render("worker", POOL, configs, {})
    assert isinstance(found, MachineConfigRendered)
    return found


@pytest.fixture
def document(rendered: MachineConfigRendered) -> dict[str, Any]:
    return rendered_document("worker", rendered, POOL)


def test_what_is_written_is_read_again(rendered: MachineConfigRendered, document: dict[str, Any]) -> None:
    assert read_object(document) == desired_config("worker", rendered, POOL)


def test_the_object_is_as_people_read_it(rendered: MachineConfigRendered, document: dict[str, Any]) -> None:
    assert document["metadata"] == {"name": rendered.name, "labels": {"mco.in-cloud.io/pool": "worker"}}
    spec = document["spec"]
    assert (spec["poolName"], spec["revision"], spec["configHash"]) == (
        "worker",
        rendered.revision,
        rendered.config_hash,
    )
    assert spec["config"]["files"][1] == {
        "path": "/etc/b", "content": "ä<b>", "mode": 420, "owner": "root:root", "state": "present",
    }  # fmt: skip
    assert spec["config"]["systemd"]["units"] == [
        {"name": "a.service", "enabled": True, "mask": False},
        {"name": "b.timer", "mask": True},
    ]
    assert spec["sources"] == [{"name": "a", "priority": 1}, {"name": "b", "priority": 50}]
    assert spec["reboot"] == {"required": True, "strategy": "IfRequired", "minIntervalSeconds": 60}


def test_the_policy_of_reboots_may_change(document: dict[str, Any]) -> None:
    document["spec"]["reboot"] |= {"strategy": "Never", "minIntervalSeconds": 1}
    assert read_object(document).reboot_strategy == "Never"


@pytest.mark.parametrize(
    "path",
    [
        ("config", "files", 0, "content"), ("config", "files", 0, "path"), ("config", "files", 1, "owner"),
        ("config", "systemd", "units", 0, "name"), ("configHash",),
    ],
)  # fmt: skip
def test_a_text_that_was_changed(document: dict[str, Any], path: tuple[Any, ...]) -> None:
    holder = document["spec"]
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] += "x"
    with pytest.raises(RenderedObjectError, match="changed or cut"):
        read_object(document)


def test_a_file_that_was_cut_or_a_reboot_that_was_dropped(document: dict[str, Any]) -> None:
    cut, tame = deepcopy(document), deepcopy(document)
    cut["spec"]["config"]["files"].pop()
    tame["spec"]["reboot"]["required"] = False
    for one in (cut, tame):
        with pytest.raises(RenderedObjectError, match="changed or cut"):
            read_object(one)


@pytest.mark.parametrize(("suffix", "is_right"), [("", True), ("-1", True), ("-12", True), ("-x", False), ("1", False)])
def test_the_name_is_that_of_the_pool_and_the_hash(document: dict[str, Any], suffix: str, is_right: bool) -> None:
    document["metadata"]["name"] += suffix
    if is_right:
        assert read_object(document).name == document["metadata"]["name"]
    else:
        with pytest.raises(RenderedObjectError, match="name of another one"):
            read_object(document)


def test_the_configuration_of_another_pool_under_the_name_of_this_one(document: dict[str, Any]) -> None:
    document["spec"]["poolName"] = "other"
    with pytest.raises(RenderedObjectError, match="name of another one"):
        read_object(document)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ((), None, "spec that is an object"),
        (("poolName",), 1, "poolName that is a text"),
        (("config",), [], "config that is an object"),
        (("config", "files"), {"a": 1}, "files that is a list"),
        (("config", "files", 0), "x", "files that is a list of objects"),
        (("config", "files", 0, "mode"), "0644", "mode that is a whole number"),
        (("config", "files", 0, "mode"), True, "mode that is a whole number"),
        (("config", "files", 0, "state"), "gone", "state that is one of present, absent"),
        (("config", "systemd", "units", 0, "enabled"), 1, "enabled that is true or false"),
        (("reboot", "strategy"), "Always", "strategy that is one of Never, IfRequired"),
    ],
)
def test_what_is_no_rendered_config(document: dict[str, Any], path: tuple[Any, ...], value: object, words: str) -> None:
    keys = ("spec", *path)
    holder = document
    for key in keys[:-1]:
        holder = holder[key]
    holder[keys[-1]] = value
    with pytest.raises(RenderedObjectError, match=words):
        read_object(document)


def test_a_small_process_reads_it_without_large_libraries() -> None:
    code = (
        "import sys, gpuledger.domain.machineconfig.rendered_object, gpuledger.domain.machineconfig.validation;"
        "print(*sorted({'pydantic', 'kubernetes', 'aiohttp', 'yaml'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "\n"
