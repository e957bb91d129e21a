"""Sees to it that `gpuledger up` joins no real cluster unawares.

A shell often has a `KUBECONFIG` that was set for something else. A data directory remembers the cluster that it joined;
before it joins another one, a person has to say so. In a pod, and with servers of one's own, nothing is asked: there
the environment was written for gpuledger. The file here only saves a question. Which ledger a cluster belongs to, the
cluster itself says.
"""

from pathlib import Path
from typing import Final

import orjson

from gpuledger.edge.kube.kubeconfig import ClusterName, cluster_name
from gpuledger.runtime.settings import KUBECONFIG, Settings
from gpuledger.tools.errors import RequestError

JOINED: Final = "cluster.json"
"""The file in the data directory that names the cluster which it joined."""


async def cluster_to_join(settings: Settings, *, is_requested: bool) -> ClusterName | None:
    """The real cluster that the settings lead to; None where the embedded API server is used. `is_requested`: `--kube`.

    Raises:
        RequestError: nobody requested it, and the data directory never met it; or there is none to join.
        KubeConfigError: the kubeconfig cannot be used.
    """
    if not settings.has_cluster:
        if is_requested:
            raise RequestError("--kube joins a real cluster, and there is none", f"Set {KUBECONFIG}")
        return None
    cluster = await cluster_name()
    if is_requested or settings.has_service_account or settings.servers is not None:
        return cluster
    joined = _joined(settings.data_dir)
    if joined != cluster.server:
        before = f"has worked with the cluster at {joined}" if joined else "never met a cluster"
        raise RequestError(
            f"{KUBECONFIG} names a real cluster ({cluster}), and the data directory {settings.data_dir} {before}",
            f"Give --kube to join that cluster, or unset {KUBECONFIG} to use the embedded API server",
        )
    return cluster


def remember(settings: Settings, cluster: ClusterName | None) -> None:
    """Note in the data directory, if there is one, that it has joined a cluster."""
    if cluster is not None and settings.servers is None:
        (settings.data_dir / JOINED).write_bytes(orjson.dumps(cluster._asdict()))


def _joined(data_dir: Path) -> str | None:
    try:
        document = orjson.loads((data_dir / JOINED).read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return None
    server = document.get("server") if isinstance(document, dict) else None
    return server if isinstance(server, str) else None
