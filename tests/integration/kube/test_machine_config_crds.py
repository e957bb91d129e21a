"""The kinds of machine configuration on an API server: what it takes, fills in, and refuses."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from gpuledger.api.kinds import MACHINE_CONFIG_POOLS, MACHINE_CONFIGS, RENDERED_MACHINE_CONFIGS, Resource
from gpuledger.api.machine_config import REFUSED_PATHS, REFUSED_UNITS
from gpuledger.domain.machineconfig.rendered_document import rendered_document
from gpuledger.domain.machineconfig.rendered_object import UNIT_STATES, read_object
from gpuledger.domain.machineconfig.rendering import render
from gpuledger.domain.machineconfig.validation import path_problem, state_problem, unit_problem
from gpuledger.edge.kube.client import KubeClient, KubeRequest
from gpuledger.edge.kube.errors import InvalidError
from gpuledger.edge.watchers.resources import machineconfigpools, machineconfigs
from gpuledger.events.machine_config import MachineConfigRendered
from support.examples import FOLDER
from support.machine_configs import config_objects, config_pool, read_configs
from support.paths import ROOT

Object = dict[str, Any]

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"

RECORDINGS = ROOT.parent / "shared" / "recordings" / "mco-lite"
SAMPLED = {one.kind: one for one in (MACHINE_CONFIGS, MACHINE_CONFIG_POOLS, RENDERED_MACHINE_CONFIGS)}
CONFIG: Object = {
    "priority": 10,
    "files": [
        {"path": "/etc/a.conf", "content": "a\n", "mode": 384, "owner": "0:0", "state": "present"},
        {"path": "/etc/b.conf", "mode": 420, "owner": "root:root", "state": "absent"},
    ],
    "systemd": {"units": [{"name": "a@b.service", "enabled": True, "state": "restarted", "mask": False}]},
    "reboot": {"required": True, "reason": "kernel"},
}
POOL: Object = {
    "nodeSelector": {"matchLabels": {"role": "gpu"}},
    "machineConfigSelector": {"matchExpressions": [{"key": "k", "operator": "Exists"}]},
    "rollout": {
        "debounceSeconds": 0, "applyTimeoutSeconds": 60, "maxUnavailable": "25%", "drainTimeoutSeconds": 60,
        "drainRetrySeconds": 10, "preferIdle": True,
    },
    "reboot": {"strategy": "IfRequired", "minIntervalSeconds": 0},
    "revisionHistory": {"limit": 0},
    "paused": True,
}  # fmt: skip
FILLED_IN: Object = {
    "rollout": {
        "debounceSeconds": 30, "applyTimeoutSeconds": 600, "maxUnavailable": 1, "drainTimeoutSeconds": 3600,
        "preferIdle": False,
    },
    "reboot": {"strategy": "Never", "minIntervalSeconds": 1800},
    "revisionHistory": {"limit": 5},
    "paused": False,
}  # fmt: skip
SUFFIXES = ("", ".service", ".socket", "@a.b.service")
PATHS = [
    "/etc/a", "/etc/.a", "/etc/..a", "/etc/...", "/etc/a b", "/srv/ä", "/usr/lib/a", "/var/lib/a",
    "/etc/kubernetes.d/a", "etc/a", "/", "/etc/",
    "/etc//a", "/etc/./a", "/etc/../a", "/etc/..", "/etc/a\n", "/etc", "/var/lib", "/usr",
    *REFUSED_PATHS, *(f"{folder}/a" for folder in REFUSED_PATHS),
]  # fmt: skip
UNITS = [
    "chronyd.service", "var-lib-a.mount", "dev-a\\x2d1.swap", "chronyd", "a.conf", ".service", "a b.service",
    *(stem + suffix for stem in REFUSED_UNITS for suffix in SUFFIXES),
]  # fmt: skip


def changed(spec: Object, path: str, value: object) -> Object:
    """A spec with another value at a path of keys and indexes; None removes it."""
    spec = deepcopy(spec)
    *parents, last = [int(part) if part.isdecimal() else part for part in path.split(".")]
    place: Any = spec
    for parent in parents:
        place = place[parent]
    place[last] = value
    if value is None:
        del place[last]
    return spec


async def made(client: KubeClient, resource: Resource, spec: Object, name: str = "a") -> Object:
    """The object as the server has it."""
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}
    return await client.create(resource, body)


@pytest.fixture
def rendered() -> Object:
    configs = read_configs([{"kind": "MachineConfig", "metadata": {"name": "a"}, "spec": CONFIG}])
    found = render("worker", config_pool(), configs, {})
    assert isinstance(found, MachineConfigRendered)
    return rendered_document("worker", found, config_pool())


async def test_whole_specs_are_kept_as_they_are(client: KubeClient, rendered: Object) -> None:
    assert (await made(client, MACHINE_CONFIGS, CONFIG))["spec"] == CONFIG
    assert (await made(client, MACHINE_CONFIG_POOLS, POOL))["spec"] == POOL
    kept = await client.apply(RENDERED_MACHINE_CONFIGS, rendered)
    assert kept["spec"] == rendered["spec"]
    assert read_object(kept) == read_object(rendered)


async def test_short_specs_are_filled_in_as_watchers_do(client: KubeClient) -> None:
    spec = {"files": [{"path": "/etc/a"}], "systemd": {"units": [{"name": "a.timer"}]}}
    config = await made(client, MACHINE_CONFIGS, spec)
    assert config["spec"] == {
        "priority": 50,
        "files": [{"path": "/etc/a", "mode": 420, "owner": "root:root", "state": "present"}],
        "systemd": {"units": [{"name": "a.timer", "mask": False}]},
    }
    pool = await made(client, MACHINE_CONFIG_POOLS, {})
    assert pool["spec"] == FILLED_IN
    assert machineconfigs.read(config).content == machineconfigs.read(config | {"spec": spec}).content
    assert machineconfigpools.read(pool).content == machineconfigpools.read(pool | {"spec": {}}).content


async def test_paths_and_units_are_refused_as_everywhere_else(client: KubeClient) -> None:
    """What the server lets through, the watchers, the renderer and the agents take; and the other way round."""
    for index, path in enumerate(PATHS):
        await _agrees(client, f"p{index}", {"files": [{"path": path}]}, path_problem(path))
    for index, name in enumerate(UNITS):
        await _agrees(client, f"u{index}", {"systemd": {"units": [{"name": name}]}}, unit_problem(name))
    for index, state in enumerate(UNIT_STATES):
        spec = {"systemd": {"units": [{"name": "reboot.target", "state": state}]}}
        await _agrees(client, f"s{index}", spec, state_problem("reboot.target", state))


async def _agrees(client: KubeClient, name: str, spec: Object, problem: str | None) -> None:
    if problem is None:
        await made(client, MACHINE_CONFIGS, spec, name)
    else:
        with pytest.raises(InvalidError):
            await made(client, MACHINE_CONFIGS, spec, name)


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("priority", -1, "should be greater than or equal to 0"),
        ("priority", 100_000, "should be less than or equal to 99999"),
        ("files.0.path", None, "spec.files[0].path: Required value"),
        ("files.0.path", "/etc/b.conf", "Duplicate value"),
        ("files.0.path", "/etc/kubernetes/a", "refused, because nodes depend on its folder"),
        ("files.0.path", "/var/lib", "it is a folder on which nodes depend"),
        ("files.0.path", "etc/a", "spec.files[0].path"),
        ("files.0.mode", 4096, "should be less than or equal to 4095"),
        ("files.0.mode", 644, "write 0644 or 420, and not 644"),
        ("files.0.mode", "0644", "spec.files[0].mode"),
        ("files.0.owner", "root", "spec.files[0].owner"),
        ("files.0.state", "gone", "spec.files[0].state: Unsupported value"),
        ("systemd.units.0.name", "kubelet.service", "the node's pods depend on it"),
        ("systemd.units.0.name", "a", "spec.systemd.units[0].name"),
        ("systemd.units.0.state", "running", "spec.systemd.units[0].state: Unsupported value"),
        ("systemd.units", [{"name": "a.timer"}] * 2, "Duplicate value"),
        ("reboot.required", "yes", "spec.reboot.required"),
    ],
)
async def test_refused_configs(client: KubeClient, path: str, value: object, why: str) -> None:
    with pytest.raises(InvalidError) as refused:
        await made(client, MACHINE_CONFIGS, changed(CONFIG, path, value))
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        *[("rollout.maxUnavailable", value, "a number of nodes from 1") for value in (0, -1, "2", "0%", "101%", "")],
        ("rollout.maxUnavailable", 1.5, "spec.rollout.maxUnavailable"),
        ("rollout.debounceSeconds", 3601, "should be less than or equal to 3600"),
        ("rollout.applyTimeoutSeconds", 59, "should be greater than or equal to 60"),
        ("rollout.applyTimeoutSeconds", 3601, "should be less than or equal to 3600"),
        ("rollout.drainTimeoutSeconds", 59, "should be greater than or equal to 60"),
        ("rollout.drainTimeoutSeconds", 86_401, "should be less than or equal to 86400"),
        ("rollout.drainRetrySeconds", 9, "should be greater than or equal to 10"),
        ("reboot.strategy", "Always", "spec.reboot.strategy: Unsupported value"),
        ("revisionHistory.limit", -1, "should be greater than or equal to 0"),
        ("nodeSelector.matchExpressions", [{"key": "a", "operator": "In"}], "values belong to In and NotIn"),
    ],
)
async def test_refused_pools(client: KubeClient, path: str, value: object, why: str) -> None:
    with pytest.raises(InvalidError) as refused:
        await made(client, MACHINE_CONFIG_POOLS, changed(POOL, path, value))
    assert why in str(refused.value)


async def test_a_pools_name_is_the_value_of_a_label(client: KubeClient) -> None:
    await made(client, MACHINE_CONFIG_POOLS, POOL, "a" * 63)
    with pytest.raises(InvalidError, match="63 characters at most"):
        await made(client, MACHINE_CONFIG_POOLS, POOL, "a" * 64)


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("poolName", "other", "poolName is immutable"),
        ("configHash", "0" * 64, "revision and configHash are immutable"),
        ("config.files.0.content", "b\n", "config is immutable"),
        ("config.files", [], "config is immutable"),
        ("config.systemd.units.0.enabled", None, "config is immutable"),
        ("sources", None, "sources is immutable"),
        ("sources.0.priority", 11, "sources is immutable"),
        ("reboot.required", False, "reboot.required is immutable"),
    ],
)
async def test_a_rendered_config_never_changes(
    client: KubeClient, rendered: Object, path: str, value: object, why: str
) -> None:
    await client.create(RENDERED_MACHINE_CONFIGS, rendered)
    with pytest.raises(InvalidError) as refused:
        await _replace(client, rendered, changed(rendered["spec"], path, value))
    assert why in str(refused.value)


async def test_the_policy_of_reboots_follows_the_pool(client: KubeClient, rendered: Object) -> None:
    await client.create(RENDERED_MACHINE_CONFIGS, rendered)
    reboot = {"required": True, "strategy": "IfRequired", "minIntervalSeconds": 7}
    changed_to = await _replace(client, rendered, rendered["spec"] | {"reboot": reboot})
    assert changed_to["spec"]["reboot"] == reboot


async def test_a_revision_is_the_beginning_of_the_hash(client: KubeClient, rendered: Object) -> None:
    with pytest.raises(InvalidError, match="revision is the beginning of configHash"):
        await client.create(RENDERED_MACHINE_CONFIGS, rendered | {"spec": rendered["spec"] | {"revision": "0" * 10}})


async def _replace(client: KubeClient, rendered: Object, spec: Object) -> Object:
    patch = [{"op": "replace", "path": "/spec", "value": spec}]
    return await client.json_patch(RENDERED_MACHINE_CONFIGS, rendered["metadata"]["name"], patch)


async def test_the_largest_configuration_that_is_rendered_is_stored(client: KubeClient) -> None:
    files = [{"path": f"/etc/a/{n}", "content": "a" * 1200} for n in range(1000)]
    configs = read_configs([{"kind": "MachineConfig", "metadata": {"name": "a"}, "spec": {"files": files}}])
    found = render("worker", config_pool(), configs, {})
    assert isinstance(found, MachineConfigRendered)
    kept = await client.apply(RENDERED_MACHINE_CONFIGS, rendered_document("worker", found, config_pool()))
    assert len(read_object(kept).files) == 1000


async def test_what_people_see(client: KubeClient, rendered: Object) -> None:
    await made(client, MACHINE_CONFIG_POOLS, POOL, "worker")
    conditions = [{"type": "Ready", "status": "False", "reason": "RolloutInProgress"}]
    status = {"targetRevision": "b", "currentRevision": "a", "machineCount": 3, "readyMachineCount": 1}
    status |= {"updatedMachineCount": 2, "degradedMachineCount": 0, "conditions": conditions}
    await client.merge_patch(MACHINE_CONFIG_POOLS, "worker", {"status": status}, subresource="status")
    await made(client, MACHINE_CONFIGS, CONFIG)
    await client.create(RENDERED_MACHINE_CONFIGS, rendered)
    assert await _shown(client, MACHINE_CONFIG_POOLS) == {
        "Name": "worker", "Target": "b", "Current": "a", "Machines": 3, "Ready": 1, "Updated": 2, "Degraded": 0,
        "Reason": "RolloutInProgress",
    }  # fmt: skip
    assert await _shown(client, MACHINE_CONFIGS) == {"Name": "a", "Priority": 10, "Reboot": True}
    assert await _shown(client, RENDERED_MACHINE_CONFIGS) == {
        "Name": rendered["metadata"]["name"], "Pool": "worker", "Revision": rendered["spec"]["revision"],
        "Reboot": True,
    }  # fmt: skip


async def _shown(client: KubeClient, resource: Resource) -> Object:
    """What `kubectl get` shows of the one object of a kind, but its age."""
    table = await client.send(KubeRequest("table", "GET", resource.path(), accept=TABLE))
    columns = [one for one in table["columnDefinitions"] if not one["priority"]]
    (row,) = table["rows"]
    cells = dict(zip([one["name"] for one in table["columnDefinitions"]], row["cells"], strict=True))
    return {one["name"]: cells[one["name"]] for one in columns if one["name"] != "Age"}


async def test_the_example_is_taken(client: KubeClient) -> None:
    for one in config_objects(FOLDER / "machine-config.yaml"):
        kept = await client.create(SAMPLED[one["kind"]], one)
        assert _without_defaults(kept["spec"], one["spec"]) == one["spec"]


@pytest.mark.shared
@pytest.mark.skipif(not RECORDINGS.is_dir(), reason=f"no samples of MCO Lite in {RECORDINGS}")
async def test_the_samples_of_mco_lite_are_taken(client: KubeClient) -> None:
    taken = [one for file in _samples() for one in config_objects(file)]
    for one in taken:
        kept = await client.create(SAMPLED[one["kind"]], one)
        assert _without_defaults(kept["spec"], one["spec"]) == one["spec"]
    assert {one["kind"] for one in taken} == SAMPLED.keys()
    for file in sorted(RECORDINGS.glob("pool-status*.yaml")):
        (given,) = config_objects(file)
        kept = await client.merge_patch(MACHINE_CONFIG_POOLS, "worker", given, subresource="status")
        assert kept["status"] == kept["status"] | given["status"]


def _samples() -> list[Path]:
    return [*sorted(RECORDINGS.glob("sample-*.yaml")), *sorted(RECORDINGS.glob("scenario-*-manifest.yaml"))]


def _without_defaults(kept: Any, given: Any) -> Any:
    """What of a stored object was given."""
    if isinstance(given, dict):
        return {key: _without_defaults(kept[key], value) for key, value in given.items()}
    if isinstance(given, list):
        return [_without_defaults(*pair) for pair in zip(kept, given, strict=True)]
    return kept
