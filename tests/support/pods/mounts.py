"""Makes the folders that a pod's volumes are, and the environment of its containers, from what the API server has."""

import os
from base64 import b64decode
from pathlib import Path
from typing import Any, Final, Protocol

from gpuledger.api.kinds import SECRETS, Resource
from gpuledger.edge.kube.client import KubeClient
from support.pods.controllers import CLAIMS, VOLUMES
from support.pods.node import Node
from support.pods.sandbox import Mount

CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
ACCOUNT_FOLDER: Final = "/var/run/secrets/kubernetes.io/serviceaccount"

Object = dict[str, Any]


class Issuer(Protocol):
    """Issues the token of a pod's service account."""

    async def __call__(self, pod: Object, audience: str | None, expires_s: int) -> str: ...


class PodFiles:
    """The volumes of one pod, in a folder of its own."""

    def __init__(self, pod: Object, folder: Path, node: Node, client: KubeClient, ca: bytes, issue: Issuer) -> None:
        self._pod, self._folder, self._node = pod, folder, node
        self._client, self._ca, self._issue = client, ca, issue
        self._namespace: str = pod["metadata"]["namespace"]
        self._volumes: dict[str, Path] = {}

    async def make(self) -> None:
        """Make all volumes."""
        for volume in self._pod["spec"].get("volumes", []):
            self._volumes[volume["name"]] = await self._volume(volume)

    async def _volume(self, volume: Object) -> Path:
        folder: Path = self._folder / volume["name"]
        if host := volume.get("hostPath"):
            return self._of_node(host["path"], host.get("type", ""))
        if "emptyDir" in volume:
            self._make(folder, 0o777)
        elif claim := volume.get("persistentVolumeClaim"):
            folder = await self._claimed(claim["claimName"])
            self._own(folder, 0o2777)
        elif secret := volume.get("secret"):
            self._write(folder, await self._data(SECRETS, secret["secretName"], secret), secret.get("defaultMode"))
        elif config := volume.get("configMap"):
            self._write(folder, await self._data(CONFIG_MAPS, config["name"], config), config.get("defaultMode"))
        elif projected := volume.get("projected"):
            for source in projected["sources"]:
                self._write(folder, await self._projected(source), projected.get("defaultMode"))
        else:
            raise AssertionError(f"no such volume is run here: {volume}")
        return folder

    async def _claimed(self, name: str) -> Path:
        claim = await self._client.get(CLAIMS, name, self._namespace)
        volume = claim["spec"].get("volumeName")
        assert volume, f"the claim {name} has no volume"
        spec = (await self._client.get(VOLUMES, volume))["spec"]
        if "hostPath" in spec:
            return self._of_node(spec["hostPath"]["path"], spec["hostPath"]["type"])
        return self._of_node(spec["local"]["path"], "")

    def _of_node(self, path: str, kind: str) -> Path:
        source = self._node.folder(path)
        if kind == "DirectoryOrCreate":
            source.mkdir(parents=True, exist_ok=True)
        assert source.exists(), f"the node has no {path}"
        return source

    def _make(self, folder: Path, mode: int) -> None:
        if not folder.exists():
            folder.mkdir(parents=True)
            self._own(folder, mode)

    async def _projected(self, source: Object) -> dict[str, bytes]:
        if token := source.get("serviceAccountToken"):
            text = await self._issue(self._pod, token.get("audience"), token.get("expirationSeconds", 3600))
            return {token["path"]: text.encode()}
        if secret := source.get("secret"):
            return await self._data(SECRETS, secret["name"], secret)
        if config := source.get("configMap"):
            return await self._data(CONFIG_MAPS, config["name"], config)
        raise AssertionError(f"no such source is run here: {source}")

    async def _data(self, resource: Resource, name: str, how: Object) -> dict[str, bytes]:
        found = await self._client.get(resource, name, self._namespace)
        is_text = resource is CONFIG_MAPS
        data = {
            key: value.encode() if is_text else b64decode(value) for key, value in (found.get("data") or {}).items()
        }
        items = how.get("items")
        return {one["path"]: data[one["key"]] for one in items} if items else data

    def _write(self, folder: Path, files: dict[str, bytes], mode: int | None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._own(folder, 0o755)
        group = self._group()
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            # A group of the pod may read what its owner may.
            wide = mode if mode is not None else 0o644
            path.chmod(wide | ((wide & 0o400) >> 3 if group else 0))
            os.chown(path, 0, group)

    def _own(self, folder: Path, mode: int) -> None:
        folder.chmod(mode)
        os.chown(folder, 0, self._group())

    def _group(self) -> int:
        return int((self._pod["spec"].get("securityContext") or {}).get("fsGroup", 0))

    async def mounts(self, container: Object, environ: dict[str, str]) -> list[Mount]:
        """A container's mounts."""
        found = []
        for one in container.get("volumeMounts", []):
            source = self._volumes[one["name"]]
            part = one.get("subPath") or _expanded(one.get("subPathExpr", ""), environ)
            if part and not (source / part).exists():
                (source / part).mkdir(parents=True)
                self._own(source / part, 0o2775)
            found.append(Mount(source / part if part else source, one["mountPath"], one.get("readOnly", False)))
        if self._pod["spec"].get("automountServiceAccountToken", True):
            found.append(Mount(await self._account(), ACCOUNT_FOLDER, read_only=True))
        return found

    async def _account(self) -> Path:
        folder = self._folder / "account"
        if not folder.exists():
            token = await self._issue(self._pod, None, 3600)
            files = {"token": token.encode(), "ca.crt": self._ca, "namespace": self._namespace.encode()}
            self._write(folder, files, None)
        return folder

    async def environment(self, container: Object, address: str, host_ip: str) -> dict[str, str]:
        """A container's environment, with references among the variables resolved."""
        fields = {
            "metadata.name": self._pod["metadata"]["name"],
            "metadata.namespace": self._namespace,
            "metadata.uid": self._pod["metadata"]["uid"],
            "spec.nodeName": self._node.name,
            "spec.serviceAccountName": self._pod["spec"].get("serviceAccountName", "default"),
            "status.podIP": address,
            "status.hostIP": host_ip,
        }
        found: dict[str, str] = {}
        for variable in container.get("env", []):
            match variable:
                case {"valueFrom": {"fieldRef": {"fieldPath": path}}}:
                    value = fields[path]
                case {"valueFrom": {"secretKeyRef": {"name": name, "key": key, **rest}}}:
                    data = await self._data(SECRETS, name, {})
                    if key not in data and rest.get("optional"):
                        continue
                    value = data[key].decode()
                case {"valueFrom": {"configMapKeyRef": {"name": name, "key": key}}}:
                    value = (await self._data(CONFIG_MAPS, name, {}))[key].decode()
                case _:
                    value = _expanded(variable.get("value", ""), found)
            found[variable["name"]] = value
        return found


def _expanded(text: str, environ: dict[str, str]) -> str:
    for name, value in environ.items():
        text = text.replace(f"$({name})", value)
    return text


def expanded(words: list[str], environ: dict[str, str]) -> list[str]:
    """A command with the variables that it refers to."""
    return [_expanded(word, environ) for word in words]
