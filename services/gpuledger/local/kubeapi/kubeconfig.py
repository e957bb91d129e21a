"""Writes the kubeconfig with which clients find the server."""

from base64 import b64encode
from pathlib import Path

import yaml

NAME = "gpuledger"
_PRIVATE_MODE = 0o600


def kubeconfig(url: str, ca: bytes | None, token: str = "") -> str:
    """The text of a kubeconfig with one cluster; without a CA the server speaks plain HTTP."""
    cluster = {"server": url}
    if ca is not None:
        cluster["certificate-authority-data"] = b64encode(ca).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": NAME, "user": {"token": token} if token else {}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME}}],
        "current-context": NAME,
    }
    return yaml.safe_dump(config, sort_keys=False)


def write_kubeconfig(path: Path, text: str) -> None:
    """Write it for its owner alone, as a whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    fresh.touch(mode=_PRIVATE_MODE)
    fresh.write_text(text)
    fresh.replace(path)
