"""What differs between two configurations, manifests in files, and the sentences of events."""

from typing import Any, get_args

import pytest

from gpuledger.events.machine_config import (
    ConfigChange,
    ConfigUnit,
    ConfigWait,
    MachineConfigDefined,
    MachineConfigPoolChanged,
    MachineConfigRendered,
    MachineConfigWaitEnded,
    NodeConfigChanged,
    NodeConfigDrainFailed,
    NodeConfigReported,
)
from gpuledger.events.node import NodeGone
from gpuledger.events.payload import Payload
from gpuledger.tools.errors import RequestError
from gpuledger.tools.machineconfig.differences import differences
from gpuledger.tools.machineconfig.manifests import manifests_of
from gpuledger.tools.machineconfig.sentences import sentence_of, with_sentence
from support.config_rollouts import NEW, POOL, rendered
from support.events import hour
from support.machine_configs import config_file, config_pool


def holding(*entries: Any, **fields: Any) -> MachineConfigRendered:
    files = tuple(one for one in entries if not isinstance(one, ConfigUnit))
    units = tuple(one for one in entries if isinstance(one, ConfigUnit))
    return rendered(NEW).model_copy(update={"files": files, "units": units, **fields})


def test_a_file_that_changed_is_a_unified_diff() -> None:
    before, after = config_file("/a", "one\ntwo\nthree\n"), config_file("/a", "one\n2\nthree\n", mode=0o600)
    (found,) = differences(holding(before), holding(after)).files
    assert (found.change, found.attributes) == ("changed", ("mode: 0644 -> 0600",))
    assert list(found.diff) == ["--- /a", "+++ /a", "@@ -1,3 +1,3 @@", " one", "-two", "+2", " three"]


def test_files_that_come_go_and_are_removed() -> None:
    gone = config_file("/absent", "", state="absent", mode=0o600)
    found = differences(holding(config_file("/old"), config_file("/absent")), holding(config_file("/new"), gone))
    assert [(one.path, one.change) for one in found.files] == [
        ("/absent", "changed"),
        ("/new", "added"),
        ("/old", "no longer managed"),
    ]
    assert found.files[0].attributes == ("state: present -> absent",)
    assert found.files[0].diff[:2] == ("--- /absent", "+++ /dev/null")
    assert found.files[1].diff[:2] == ("--- /dev/null", "+++ /new")


def test_a_missing_end_of_line_is_a_difference() -> None:
    (found,) = differences(holding(config_file("/a", "x")), holding(config_file("/a", "x\n"))).files
    assert found.diff[-2:] == ("-x\n\\ No newline at end of file", "+x")


def test_units_differ_by_what_is_given() -> None:
    before = (ConfigUnit(name="a.service", enabled=True, state="started"), ConfigUnit(name="b.service"))
    after = (ConfigUnit(name="a.service", enabled=False), ConfigUnit(name="c.service", mask=True))
    found = {one.name: (one.change, one.attributes) for one in differences(holding(*before), holding(*after)).units}
    assert found == {
        "a.service": ("changed", ("enabled: true -> false", "state: started -> as it is")),
        "b.service": ("no longer managed", ()),
        "c.service": ("added", ("mask: true",)),
    }


def test_equal_configurations_do_not_differ() -> None:
    same = holding(config_file("/a"), ConfigUnit(name="a.service"))
    assert not differences(same, same)
    assert differences(same, same.model_copy(update={"reboot_required": True})).reboot == "required: false -> true"
    assert differences(None, holding()).files == ()


def manifest(kind: str = "MachineConfig", version: str = "mco.in-cloud.io/v1alpha1", **spec: Any) -> dict[str, Any]:
    return {"kind": kind, "apiVersion": version, "metadata": {"name": "m"}, "spec": spec}


def test_manifests_are_read_as_watchers_read_objects() -> None:
    found = manifests_of([("f", manifest(priority=7)), ("f", manifest("MachineConfigPool", paused=True))])
    assert (found.configs["m"].priority, found.pools["m"].paused) == (7, True)


@pytest.mark.parametrize(
    ("objects", "says"),
    [
        ([manifest("Node", "v1")], "f has Node of v1. Give MachineConfig and MachineConfigPool"),
        ([{}], "f has something without a kind"),
        ([manifest(), manifest()], "is there twice"),
        ([manifest(priority=-1)], "f: MachineConfig m is refused"),
        ([manifest("MachineConfigPool", rollout={"maxUnavailable": "0%"})], "f: MachineConfigPool m is refused"),
        ([{**manifest(), "metadata": {}}], "it has no name"),
    ],
)
def test_manifests_that_are_refused(objects: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(RequestError) as refused:
        manifests_of([("f", one) for one in objects])
    assert says in str(refused.value)


DRAINING = NodeConfigChanged(uid="u", pool=POOL, phase="Draining", cordoned=True)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (config_pool(paused=True), "is defined: at most 1 at a time, paused"),
        (rendered(NEW, "a", "b"), f"{NEW} is rendered from a, b: 0 files, 0 units"),
        (
            MachineConfigPoolChanged(target_revision=NEW, machine_count=3, updated_count=1),
            f"1 of 3 nodes have {NEW}, 0 unavailable",
        ),
        (MachineConfigWaitEnded(wait="ApplyTimeout", node="n1", since=hour(0)), "the agent of n1 has not applied"),
        (DRAINING, "is set aside and drained for pool gpu"),
        (DRAINING.model_copy(update={"phase": "Applying", "desired_revision": NEW}), f"is to have {NEW}"),
        (DRAINING.model_copy(update={"phase": "Failed", "reason": "ApplyTimeout", "message": "m"}), "ApplyTimeout: m"),
        (DRAINING.model_copy(update={"pool": None}), "belongs to no pool any more"),
        (NodeConfigDrainFailed(pool=POOL, attempt=2, left=1, is_stuck=True), "attempt 2, 1 pods left, longer than"),
        (
            NodeConfigReported(
                state="error", revision=NEW, error="EIO", change_count=2,
                changes=(ConfigChange(subject="/a", action="write", outcome="failed"),),
            ),
            f"the agent is error {NEW}, 2 changes, failed: /a: EIO",
        ),
    ],
)  # fmt: skip
def test_events_say_what_happened(data: Payload, says: str) -> None:
    assert says in (sentence_of(data) or "")


@pytest.mark.parametrize("wait", get_args(ConfigWait))
def test_the_end_of_every_wait_says_which(wait: ConfigWait) -> None:
    text = sentence_of(MachineConfigWaitEnded(wait=wait, node="n1", since=hour(0))) or ""
    assert ("n1" in text) == (wait != "Debounce")


def test_contents_stay_out_of_timelines_and_other_events_as_they_are() -> None:
    data = holding(config_file("/a", "secret"))
    assert "secret" not in str(with_sentence(data, {"files": ["secret"], "name": NEW}))
    assert with_sentence(NodeGone(), {"a": 1}) == {"a": 1}
    assert sentence_of(MachineConfigDefined(uid="u")) is None
