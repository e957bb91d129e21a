"""The folder `examples/`: its manifests, by file, and the commands that its README shows."""

import re
import shlex
from typing import Any, Final

import yaml

from gpuledger.api.kinds import CLUSTER_GPU_POOLS, GPU_POOLS, MODULE_CONFIGS, NAMESPACES, PODS, Resource
from gpuledger.edge.kube.client import KubeClient
from support.paths import ROOT

FOLDER: Final = ROOT / "examples"
QUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota", namespaced=True)
ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
BINDINGS: Final = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding")
KINDS: Final = {
    one.kind: one
    for one in (NAMESPACES, ACCOUNTS, PODS, QUOTAS, MODULE_CONFIGS, GPU_POOLS, CLUSTER_GPU_POOLS, BINDINGS)
}


def manifests(name: str) -> list[dict[str, Any]]:
    """The objects of a file, in their order."""
    return list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()))


def commands() -> list[str]:
    """What the README has in its blocks of commands, in their order."""
    return re.findall(r"^```sh\n(.*?)^```", (FOLDER / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def fleet() -> str:
    """The fleet that the README starts."""
    words = shlex.split(commands()[0], comments=True)
    return words[words.index("--fleet") + 1]


async def apply(client: KubeClient, *names: str) -> None:
    """Have everything of these files in the cluster."""
    for name in names:
        for one in manifests(name):
            await client.apply(KINDS[one["kind"]], one, field_manager="examples", force=True)
