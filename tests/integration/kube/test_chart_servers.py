"""The chart with its default values: real helm, and the commands of its pods as processes with their own Secrets.

Names of the cluster stand for ports of this machine; the servers' certificates are held against its address.
"""

import asyncio
import re
import urllib.error
import urllib.request
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuledger.api.bundled import NATS_LOGINS, PARTS
from gpuledger.api.kinds import DEPLOYMENTS, JOBS, SECRETS
from gpuledger.runtime.gateway_settings import LISTEN
from gpuledger.runtime.settings import METRICS_LISTEN, NatsIdentity
from support.chart import IMAGE, NAME, NAMESPACE, needs_helm, render
from support.chart_cluster import HOST, Cluster
from support.chart_servers import ChartServers, PodProcess, pod_process
from support.kube_fleet import STORAGE_CLASSES, create, create_storage_class
from support.ledgers import make_ledger
from support.paths import ROOT
from support.pods.controllers import CLAIMS
from support.rights import beyond, granted, unused
from support.tls_postgres import needs_tls_postgres
from support.waiting import eventually

pytestmark = [needs_helm, pytest.mark.long]

OURS = {f"{NAME}-{part}" for part in PARTS}
CALLOUT = "gpu-agent-auth"
GATEWAY = f"{NAME}-gateway"
RULES = {
    part: {"rules": yaml.safe_load((ROOT / "examples" / f"{part}-rules.yaml").read_text())}
    for part in ("quarantine", "remediation")
}
HEALTH = re.compile(r"health +(http://\S+/healthz)").search


@needs_tls_postgres
async def test_default_values_give_a_working_system(cluster: Cluster, tmp_path: Path) -> None:
    servers = ChartServers(cluster, tmp_path)
    installed = await cluster.helm("install", IMAGE)
    assert installed.code == 0, (installed, cluster.kubelet.ran)
    assert cluster.kubelet.ran[f"{NAME}-credentials"].log.count("created") == len(PARTS)
    assert await names(cluster) >= OURS
    assert cluster.server.refused == []

    async with servers.running() as (nats, postgres):
        await ran(cluster, f"{NAME}-migrate-1", nats, postgres)
        assert "Migrated from an empty database" in cluster.kubelet.ran[f"{NAME}-migrate-1"].log
        pod = (await cluster.client.get(DEPLOYMENTS, NAME, NAMESPACE))["spec"]["template"]["spec"]
        (waits,) = pod["initContainers"]
        waited = await cluster.kubelet.container(NAMESPACE, {**pod, "containers": [waits]}, NAME)
        assert waited.code == 0, waited
        async with services(cluster, pod) as up:
            await healthy(up)
            await an_agent_can_log_in(cluster)

            before = await data(cluster)
            upgraded = await cluster.helm("upgrade", {**IMAGE, "replicas": 1})
            assert upgraded.code == 0, (upgraded, cluster.kubelet.ran)
            assert "nothing to migrate" in cluster.kubelet.ran[f"{NAME}-migrate"].log
            assert cluster.kubelet.ran[f"{NAME}-credentials"].log.count("unchanged") == len(PARTS)
            assert await data(cluster) == before
            assert await cluster.names(JOBS) == set()

    uninstalled = await cluster.helm("uninstall")
    assert uninstalled.code == 0, uninstalled
    assert OURS & await names(cluster) == set()
    assert f"data-{NAME}-" in cluster.kubelet.ran[f"{NAME}-uninstall"].log


async def test_servers_whose_volumes_would_never_come_are_not_installed(cluster: Cluster) -> None:
    await cluster.client.delete(STORAGE_CLASSES, "standard")
    await create_storage_class(cluster.client, "slow", is_default=False)
    refused = await cluster.helm("install", IMAGE)
    assert refused.code == 1
    assert "this cluster has no default StorageClass" in refused.err
    assert "Set nats.persistence.storageClass (slow), or nats.persistence.enabled=false for a trial" in refused.err

    parts = ("nats", "postgresql")
    named = {part: {"persistence": {"storageClass": "slow"}} for part in parts}
    trial = {part: {"persistence": {"enabled": False}} for part in parts}
    for values in (named, trial, {"nats": named["nats"], "postgresql": trial["postgresql"]}):
        assert (await cluster.helm("install", {**IMAGE, **values}, "--dry-run=server")).code == 0
    for part in ("nats", "postgres"):
        claim = {"metadata": {"name": f"data-{NAME}-{part}-0", "namespace": NAMESPACE}, "spec": {}}
        await create(cluster.client, CLAIMS, claim)
    again = await cluster.helm("install", IMAGE, "--dry-run=server")
    assert again.code == 0, "the volumes of an earlier release are there"


async def test_a_release_whose_servers_never_ran_is_migrated_beside_those_that_an_upgrade_brings(
    cluster: Cluster,
) -> None:
    assert (await cluster.helm("install", IMAGE)).code == 0
    upgraded = await cluster.helm("upgrade", IMAGE, "--no-hooks")
    assert upgraded.code == 0, upgraded
    assert await cluster.names(JOBS) == {f"{NAME}-migrate-2"}, "a hook would wait for servers that come after it"


async def test_the_job_that_makes_credentials_has_just_the_rights_that_it_needs(cluster: Cluster) -> None:
    account, made = f"{NAME}-credentials", render(IMAGE)
    assert (await cluster.helm("install", IMAGE)).code == 0
    await cluster.client.merge_patch(SECRETS, f"{NAME}-nats", {"data": {"tls.crt": None, "reader": None}}, NAMESPACE)
    for part in set(PARTS) - {"nats"}:
        await cluster.client.merge_patch(SECRETS, f"{NAME}-{part}", {"data": {"ca.crt": None}}, NAMESPACE)
    await cluster.client.merge_patch(SECRETS, f"{NAME}-ca", {"data": {"tls.key": None}}, NAMESPACE)
    job = made.one("Job", account)["spec"]["template"]["spec"]
    again = await cluster.kubelet.container(NAMESPACE, job, account)
    assert again.code == 1, "its account was there only for the time of the hook"
    renewal = made.one("CronJob", f"{NAME}-renewal")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    renewed = await cluster.kubelet.container(NAMESPACE, renewal, "renewal")
    assert (renewed.code, renewed.log.count("updated")) == (0, len(PARTS)), renewed
    requested = cluster.requested_by(account) | cluster.requested_by(f"{NAME}-renewal")
    for name in (account, f"{NAME}-renewal"):
        rules = granted(made, name)
        assert (beyond(requested, rules), unused(requested, rules)) == (set(), set()), name


async def test_each_client_has_its_own_login_and_no_other(cluster: Cluster) -> None:
    assert (await cluster.helm("install", IMAGE)).code == 0
    kept = await data(cluster)
    passwords = {login: kept["nats"][login] for login in NATS_LOGINS}
    assert len(set(passwords.values())) == len(passwords)
    for login, password in passwords.items():
        holders = {part for part, content in kept.items() if any(password in value for value in content.values())}
        assert holders == {"nats", login}
    seed = kept["callout"]["seed"]
    assert [part for part, content in kept.items() if seed in content.values()] == ["callout"]
    assert set(kept["agents"]) == {"ca.crt"}


@needs_tls_postgres
async def test_rules_of_a_release_are_put_into_force_once(cluster: Cluster, tmp_path: Path) -> None:
    servers, jobs = ChartServers(cluster, tmp_path), (f"{NAME}-rules", f"{NAME}-remedies")
    assert (await cluster.helm("install", {**IMAGE, **RULES})).code == 0
    async with servers.running() as (nats, postgres):
        for job in jobs:
            await ran(cluster, f"{job}-1", nats, postgres)
            assert "are in force, version" in cluster.kubelet.ran[f"{job}-1"].log

        upgraded = await cluster.helm("upgrade", {**IMAGE, **RULES})
        assert upgraded.code == 0, (upgraded, cluster.kubelet.ran)
        for job in jobs:
            assert "nothing was recorded" in cluster.kubelet.ran[job].log
        assert await cluster.names(JOBS) == set()

        refused = await cluster.helm("upgrade", {**IMAGE, **of_quarantine("event.colour == 'red'")})
        assert refused.code != 0, refused
        assert "match.all[0].expression: event has no field colour" in cluster.kubelet.ran[jobs[0]].log

        assert (await cluster.helm("upgrade", {**IMAGE, **of_quarantine()})).code == 0
        assert "0 rulesets of " in cluster.kubelet.ran[jobs[0]].log
    assert cluster.server.refused == []


def of_quarantine(*expressions: str) -> dict[str, Any]:
    """The values of a release with one ruleset for each expression."""
    found = [
        {"name": str(number), "match": {"all": [{"expression": one}]}, "cordon": {"shouldCordon": True}}
        for number, one in enumerate(expressions)
    ]
    return {"quarantine": {"rules": {"kind": "QuarantineRules", "ruleSets": found}}}


async def test_the_health_gateway_has_a_login_and_a_certificate(cluster: Cluster, tmp_path: Path) -> None:
    servers = ChartServers(cluster, tmp_path)
    values = {**IMAGE, "healthGateway": {"enabled": True, "reporters": ["monitors"]}}
    assert (await cluster.helm("install", values)).code == 0
    operator = (await data(cluster))["operator"]
    for name in ("nats.creds", "ca.crt"):
        (tmp_path / name).write_bytes(operator[name])
    async with servers.nats():
        identity = NatsIdentity(tmp_path / "nats.creds", ca=tmp_path / "ca.crt")
        await make_ledger(f"tls://{HOST}:{servers.nats_port}", identity)
        pod = (await cluster.client.get(DEPLOYMENTS, GATEWAY, NAMESPACE))["spec"]["template"]["spec"]
        anywhere = {METRICS_LISTEN: f"{HOST}:0", LISTEN: f"{HOST}:0"}
        async with pod_process(cluster, pod, GATEWAY, **anywhere) as gateway:
            await healthy(gateway)


def services(cluster: Cluster, pod: dict[str, Any]) -> Any:
    """`up` as the Deployment's pods run it, but for the ports."""
    admission = {"GPULEDGER_ADMISSION_LISTEN": f"{HOST}:{cluster.webhooks_port}"}
    return pod_process(cluster, pod, NAME, ("--listen", f"{HOST}:0"), **admission)


async def healthy(up: PodProcess) -> None:
    """Return when it is ready."""

    async def is_ready() -> bool:
        assert up.process.returncode is None, up.output
        found = HEALTH(up.output)
        return found is not None and await asyncio.to_thread(answers, found[1])

    await eventually(is_ready)


async def an_agent_can_log_in(cluster: Cluster) -> None:
    """The auth callout reaches the server with its own login, and is ready to answer."""
    pod = (await cluster.client.get(DEPLOYMENTS, CALLOUT, NAMESPACE))["spec"]["template"]["spec"]
    async with pod_process(cluster, pod, CALLOUT, **{METRICS_LISTEN: f"{HOST}:0"}) as callout:
        await healthy(callout)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


async def ran(cluster: Cluster, job: str, *servers: PodProcess) -> None:
    """Return when a job has succeeded."""

    async def is_over() -> bool:
        return job in cluster.kubelet.ran

    await eventually(is_over)
    assert cluster.kubelet.ran[job].code == 0, (cluster.kubelet.ran[job], *(one.output for one in servers))


async def names(cluster: Cluster) -> set[str]:
    return {one["metadata"]["name"] for one in (await cluster.client.list(SECRETS)).items}


async def data(cluster: Cluster) -> dict[str, dict[str, bytes]]:
    """The content of each Secret of the servers, by the end of its name."""
    found = {part: await cluster.client.get(SECRETS, f"{NAME}-{part}", NAMESPACE) for part in PARTS}
    return {part: {key: b64decode(value) for key, value in one["data"].items()} for part, one in found.items()}
