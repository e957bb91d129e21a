"""Finds the configuration of the API server: a named file, `KUBECONFIG`, the pod's own, or `~/.kube/config`.

The official package reads the files and renews tokens; it is imported when it is needed, because that takes longer than
most commands. This module only decides on the file, and must never keep a secret anywhere but in the configuration that
it returns.
"""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from gpuledger.edge.kube.errors import KubeConfigError

if TYPE_CHECKING:
    from kubernetes.aio.client.configuration import Configuration
    from kubernetes.aio.config.kube_config import KubeConfigLoader

KUBECONFIG: Final = "KUBECONFIG"
IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"
DEFAULT_KUBECONFIG: Final = "~/.kube/config"
IMPERSONATION: Final = ("as", "as-uid", "as-groups", "as-user-extra")
TOKEN: Final = "BearerToken"  # noqa: S105 - the package's name for it


class ClusterName(NamedTuple):
    """A cluster as people know it: the context of the kubeconfig (empty in a pod), and the server's URL."""

    context: str
    server: str

    def __str__(self) -> str:
        return f"context {self.context}, server {self.server}" if self.context else f"server {self.server}"


async def cluster_name(*, environ: Mapping[str, str] = os.environ) -> ClusterName:
    """The cluster of the configuration in force.

    Raises:
        KubeConfigError: there is none, or it cannot be used.
    """
    configuration = await load_configuration(environ=environ)
    files = environ.get(KUBECONFIG) or ("" if IN_CLUSTER in environ else DEFAULT_KUBECONFIG)
    return ClusterName(_context_of(files) if files else "", str(configuration.host))


def _context_of(files: str) -> str:
    """The current context of files that can be used."""
    from kubernetes.aio.config.kube_config import list_kube_config_contexts  # noqa: PLC0415 - see above

    _, current = list_kube_config_contexts(files)  # type: ignore[no-untyped-call]
    return str(current["name"])


async def load_configuration(
    kubeconfig: Path | None = None, *, context: str | None = None, environ: Mapping[str, str] = os.environ
) -> "Configuration":
    """The configuration in force. `kubeconfig` wins over `KUBECONFIG`, that over the pod's own, that over the default.

    Raises:
        KubeConfigError: none is there, or it cannot be used.
    """
    files = str(kubeconfig) if kubeconfig else environ.get(KUBECONFIG)
    if not files and IN_CLUSTER in environ:
        return _in_cluster()
    files = files or DEFAULT_KUBECONFIG
    if not _any_exists(files):
        raise KubeConfigError(f"There is no kubeconfig at {files}. Name one with --kubeconfig or {KUBECONFIG}.")
    return await _from_files(files, context)


def _any_exists(files: str) -> bool:
    return any(Path(file).expanduser().is_file() for file in files.split(os.pathsep) if file)


def _in_cluster() -> "Configuration":
    from kubernetes.aio.client.configuration import Configuration  # noqa: PLC0415 - see above
    from kubernetes.aio.config import load_incluster_config  # noqa: PLC0415

    configuration = Configuration()
    try:
        load_incluster_config(configuration)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise KubeConfigError(
            f"The pod's service account cannot be used: {error}. Mount its token, or set {KUBECONFIG}."
        ) from error
    return configuration


async def _from_files(files: str, context: str | None) -> "Configuration":
    from kubernetes.aio.client.configuration import Configuration  # noqa: PLC0415 - see above
    from kubernetes.aio.config.kube_config import load_kube_config  # noqa: PLC0415

    configuration = Configuration()
    try:
        loader = await load_kube_config(  # type: ignore[no-untyped-call]
            files, context, configuration, persist_config=False
        )
    except Exception as error:
        raise KubeConfigError(
            f"The kubeconfig {files} cannot be used: {error}. `kubectl --kubeconfig {files} version` says more."
        ) from error
    _refuse_impersonation(loader, files)
    if hasattr(loader, "exec_plugin_expiry"):
        configuration.refresh_api_key_hook = partial(_renew, loader)  # type: ignore[assignment]
    return configuration


def _refuse_impersonation(loader: "KubeConfigLoader", files: str) -> None:
    """The package ignores `as`, so requests would have the rights that the user meant to give up."""
    user = loader._user  # noqa: SLF001 - the package has no other way to it
    names = [user.value[key] for key in IMPERSONATION if user is not None and user.value.get(key)]
    if names:
        raise KubeConfigError(
            f"The kubeconfig {files} acts as {names[0]}, which gpuledger does not. Use credentials of that account."
        )


async def _renew(loader: "KubeConfigLoader", configuration: "Configuration") -> None:
    """Run the plugin again once its token has expired, which the loader checks."""
    await loader.load_from_exec_plugin()  # type: ignore[no-untyped-call]
    configuration.api_key[TOKEN] = loader.token
