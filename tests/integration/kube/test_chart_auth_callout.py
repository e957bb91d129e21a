"""The chart's auth callout beside a NATS server of one's own: its pod, its rights, and a real server."""

from base64 import b64encode
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpuledger.api.kinds import SECRETS, Resource
from gpuledger.ledger.edge import connect_edge
from gpuledger.ledger.errors import PermissionDeniedError
from gpuledger.ledger.permissions import Role
from gpuledger.ledger.stream import create_ledger
from gpuledger.runtime.settings import METRICS_LISTEN, NATS_TOKEN_FILE, NATS_URL, NatsIdentity
from support.auth_callout import CalloutServer, Setup, bound_token, by_configuration, by_operator
from support.chart import NAMESPACE, WITH_URLS, Manifests, needs_helm, render
from support.chart_cluster import HOST, Cluster
from support.chart_servers import pod_process
from support.examples import ACCOUNTS
from support.kube_fleet import create
from support.logins import fact
from support.rights import beyond, granted, unused
from support.servers import short_directory
from support.waiting import eventually

pytestmark = [needs_helm, pytest.mark.long]

CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = CLUSTER_ROLES._replace(plural="clusterrolebindings", kind="ClusterRoleBinding")
CALLOUT, AGENT = "gpu-agent-auth", "gpu-node-agent"
ADDRESS = "nats.example:4222"
NODE = "gpu-01.example.com"
MODES = {"configuration": partial(by_configuration, xkey=True), "operator": partial(by_operator, xkey=True)}


def values(setup: Setup) -> dict[str, Any]:
    callout = {"enabled": True, "credentialsSecret": "callout-login", "keysSecret": "callout-keys", "xkeyKey": "xkey"}
    callout |= {"account": setup.settings.account} if setup.settings.account else {}
    return {**WITH_URLS, "agent": {"nats": {"url": f"nats://{ADDRESS}"}, "authCallout": callout}}


async def make_secrets(cluster: Cluster, setup: Setup) -> None:
    """The two Secrets that docs/agent-credentials.md has people make."""
    settings = setup.settings
    keys = {"seed": settings.seed, "xkey": settings.xkey, "account-seed": settings.account_seed}
    for name, files in {
        "callout-login": {"nats.creds": settings.nats_identity.credentials},
        "callout-keys": keys,
    }.items():
        data = {key: b64encode(file.read_bytes()).decode() for key, file in files.items() if file}
        await create(cluster.client, SECRETS, {"metadata": {"name": name, "namespace": NAMESPACE}, "data": data})


async def make_accounts(cluster: Cluster, made: Manifests) -> None:
    """The accounts of agents and of the callout, and the callout's rights; the API server refuses all others."""
    for name in (AGENT, CALLOUT):
        await create(cluster.client, ACCOUNTS, made.one("ServiceAccount", name))
    for resource in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS):
        await create(cluster.client, resource, made.one(resource.kind, CALLOUT))


@pytest.mark.parametrize("prepare", list(MODES.values()), ids=list(MODES))
async def test_agents_log_in_by_their_tokens_and_the_callout_uses_just_its_rights(
    cluster: Cluster, prepare: Callable[[Path], Setup]
) -> None:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(short_directory())
        setup = prepare(folder)
        nats = stack.enter_context(CalloutServer(folder / "nats", setup))
        cluster.kubelet.files.places[ADDRESS] = nats.address
        async with nats.connected_as(Role.OPERATOR) as connection:
            await create_ledger(connection, "ledger")
        await make_secrets(cluster, setup)
        made = render(values(setup))
        await make_accounts(cluster, made)
        pod = made.one("Deployment", CALLOUT)["spec"]["template"]["spec"]
        callout = await stack.enter_async_context(pod_process(cluster, pod, CALLOUT, **{METRICS_LISTEN: f"{HOST}:0"}))

        async def is_up() -> bool:
            assert callout.process.returncode is None, callout.output
            return " is up" in callout.output

        await eventually(is_up)
        url, identity = await agent_of(cluster, made.one("DaemonSet", AGENT)["spec"]["template"]["spec"])
        async with connect_edge(url, name="agent", node=NODE, identity=identity) as agent:
            await agent.publish(fact(NODE))
            with pytest.raises(PermissionDeniedError):
                await agent.publish(fact("other"))
    requested, rules = cluster.requested_by(CALLOUT), granted(made, CALLOUT)
    assert (beyond(requested, rules), unused(requested, rules)) == (set(), set())


async def agent_of(cluster: Cluster, pod: dict[str, Any]) -> tuple[str, NatsIdentity]:
    """Where the DaemonSet's pod finds the ledger and as whom, with the token that a kubelet projects for it."""
    folders = await cluster.kubelet.files.mount(NAMESPACE, pod, AGENT)
    (container,) = pod["containers"]
    environ = {one["name"]: cluster.kubelet.files.here(one.get("value", ""), folders) for one in container["env"]}
    identity = NatsIdentity(token=Path(environ[NATS_TOKEN_FILE]))
    write(identity.token, await bound_token(cluster.client, NAMESPACE, AGENT, NODE))
    return environ[NATS_URL], identity


def write(file: Path | None, text: str) -> None:
    assert file is not None
    file.write_text(text)
