"""Where the API server is and how the agent proves who it is: a pod's service account, or a kubeconfig.

The token and the authority are read again for each request, because the kubelet renews both while the agent runs. The
official client does more, for three times the memory that the agent may have.
"""

import base64
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from gpuledger.configagent.errors import AccessError, ApiError
from gpuledger.runtime.settings import KUBECONFIG, KUBERNETES_SERVICE_HOST, SERVICE_ACCOUNT_TOKEN

SERVICE_PORT: Final = "KUBERNETES_SERVICE_PORT"
DEFAULT_PORT: Final = "443"
CA_FILE: Final = "ca.crt"


@dataclass(frozen=True, slots=True)
class KubeAccess:
    """An API server. `token` is a file or the token itself; a client certificate is two files."""

    server: str
    ca: Path | str | None = None
    token: Path | str | None = None
    certificate: tuple[Path, Path] | None = None
    verify: bool = True

    def authorization(self) -> dict[str, str]:
        """The header of a request, as of now.

        Raises:
            ApiError: the token's file cannot be read.
        """
        if self.token is None:
            return {}
        try:
            token = self.token.read_text().strip() if isinstance(self.token, Path) else self.token
        except OSError as error:
            raise ApiError(f"The token {self.token} cannot be read: {error.strerror}.") from error
        return {"Authorization": f"Bearer {token}"}

    def tls(self) -> ssl.SSLContext | None:
        """What a connection trusts, as of now; None where the server speaks plain HTTP.

        Raises:
            ApiError: the authority or the certificate cannot be read.
        """
        if urlsplit(self.server).scheme != "https":
            return None
        try:
            file = str(self.ca) if isinstance(self.ca, Path) else None
            context = ssl.create_default_context(cafile=file, cadata=self.ca if isinstance(self.ca, str) else None)
            if self.certificate is not None:
                context.load_cert_chain(*self.certificate)
        except (OSError, ValueError) as error:
            raise ApiError(f"The authority or the certificate for {self.server} cannot be used: {error}.") from error
        if not self.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context


def read_access(environ: Mapping[str, str], token: Path = SERVICE_ACCOUNT_TOKEN) -> KubeAccess:
    """The API server of an environment: that of KUBECONFIG, else of the pod.

    Raises:
        AccessError: there is none, or it cannot be used.
    """
    if environ.get(KUBECONFIG):
        return _of_kubeconfig(Path(environ[KUBECONFIG]).expanduser())
    host = environ.get(KUBERNETES_SERVICE_HOST)
    if not host:
        raise AccessError(f"There is no API server; run in a pod, or set {KUBECONFIG}.")
    if not token.is_file():
        raise AccessError(f"There is no token at {token}; mount that of a service account, or set {KUBECONFIG}.")
    name = f"[{host}]" if ":" in host else host
    server = f"https://{name}:{environ.get(SERVICE_PORT) or DEFAULT_PORT}"
    return KubeAccess(server, ca=token.with_name(CA_FILE), token=token)


def _of_kubeconfig(file: Path) -> KubeAccess:
    import yaml  # noqa: PLC0415 - a pod does without

    try:
        document = yaml.safe_load(file.read_bytes())
        context = _named(document["contexts"], document["current-context"], "context")
        cluster = _named(document["clusters"], context["cluster"], "cluster")
        user = _named(document.get("users") or (), context.get("user"), "user") if context.get("user") else {}
    except (OSError, yaml.YAMLError, KeyError, TypeError, StopIteration) as error:
        raise AccessError(f"The kubeconfig {file} cannot be used: {error!r}. See `kubectl config view`.") from error
    if user.get("exec") or user.get("auth-provider"):
        raise AccessError(f"The kubeconfig {file} runs a program for its token; give a token or a certificate.")
    return KubeAccess(
        cluster["server"],
        ca=_data(cluster, "certificate-authority-data") or _path(file, cluster.get("certificate-authority")),
        token=user.get("token") or _path(file, user.get("tokenFile")),
        certificate=_certificate(file, user),
        verify=not cluster.get("insecure-skip-tls-verify"),
    )


def _named(items: Any, name: str | None, kind: str) -> Mapping[str, Any]:  # noqa: ANN401
    found: Mapping[str, Any] = next(one for one in items if one["name"] == name)[kind]
    return found


def _path(kubeconfig: Path, name: str | None) -> Path | None:
    """A file that a kubeconfig names, relative to itself."""
    return None if not name else kubeconfig.parent / name


def _data(given: Mapping[str, Any], key: str) -> str | None:
    return base64.b64decode(given[key]).decode() if given.get(key) else None


def _certificate(kubeconfig: Path, user: Mapping[str, Any]) -> tuple[Path, Path] | None:
    """The client's certificate and key; the library takes files alone, so data is written into private ones."""
    given = _data(user, "client-certificate-data"), _data(user, "client-key-data")
    if all(given):
        folder = Path(tempfile.mkdtemp(prefix="gpuledger-"))
        files = folder / "client.crt", folder / "client.key"
        for path, text in zip(files, given, strict=True):
            path.write_text(text or "")
        return files
    certificate, key = (_path(kubeconfig, user.get(name)) for name in ("client-certificate", "client-key"))
    return None if certificate is None or key is None else (certificate, key)
