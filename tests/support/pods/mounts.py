"""Makes the folders that a pod's volumes are, and the environment of its containers, from what the API server has."""

import os
import re
from base64 import b64decode
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from gpuledger.api.kinds import SECRETS, Resource
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import NotFoundError
from support.pods.controllers import CLAIMS, VOLUMES
from support.pods.files import replace_files
from support.pods.node import Node
from support.pods.sandbox import Mount

CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
ACCOUNT_FOLDER: Final = "/var/run/secrets/kubernetes.io/serviceaccount"

Object = dict[str, Any]
Read = Callable[[], Awaitable[dict[str, bytes]]]
"""Reads the files of one source of a volume, by their paths in it."""

_KEYED: Final = re.compile(r"metadata\.(annotations|labels)\['(.+)'\]")


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
        self._written: dict[Path, tuple[Sequence[Read], int | None, dict[str, bytes]]] = {}

    async def make(self) -> None:
        """Make all volumes."""
        for volume in self._pod["spec"].get("volumes", []):
            self._volumes[volume["name"]] = await self._volume(volume)

    async def refresh(self) -> None:
        """Write anew what ConfigMaps and Secrets have by now; what is gone stays as it was, unless it is optional."""
        for folder, (sources, mode, before) in list(self._written.items()):
            try:
                files = await _read(sources)
            except NotFoundError:
                continue
            if files != before:
                self._write(folder, files, mode)
                self._written[folder] = sources, mode, files

    async def _volume(self, volume: Object) -> Path:
        folder: Path = self._folder / volume["name"]
        if host := volume.get("hostPath"):
            return self._of_node(host["path"], host.get("type", ""))
        if "emptyDir" in volume:
            self._make(folder, 0o777)
        elif claim := volume.get("persistentVolumeClaim"):
            folder = await self._claimed(claim["claimName"])
            self._own(folder, 0o2777)
        elif projected := volume.get("projected"):
            sources = [await self._source(one) for one in projected["sources"]]
            await self._follow(folder, sources, projected.get("defaultMode"))
        else:
            source = await self._source(volume)
            await self._follow(folder, [source], _mode(volume))
        return folder

    async def _follow(self, folder: Path, sources: Sequence[Read], mode: int | None) -> None:
        """Write a volume that follows its sources."""
        files = await _read(sources)
        self._write(folder, files, mode)
        self._written[folder] = sources, mode, files

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

    async def _source(self, source: Object) -> Read:
        """How to read a source of files: of a volume of its own, or of one that has several."""
        if token := source.get("serviceAccountToken"):
            text = await self._issue(self._pod, token.get("audience"), token.get("expirationSeconds", 3600))
            return _always({token["path"]: text.encode()})
        if downward := source.get("downwardAPI"):
            values = {one["path"]: self._field(one["fieldRef"]["fieldPath"]) for one in downward["items"]}
            return _always({path: value.encode() for path, value in values.items()})
        if secret := source.get("secret"):
            return lambda: self._data(SECRETS, secret.get("secretName") or secret["name"], secret)
        if config := source.get("configMap"):
            return lambda: self._data(CONFIG_MAPS, config["name"], config)
        raise AssertionError(f"no such volume or source is run here: {source}")

    def _field(self, path: str) -> str:
        """A field of the pod that is there before it runs."""
        metadata = self._pod["metadata"]
        if keyed := _KEYED.fullmatch(path):
            return str((metadata.get(keyed[1]) or {}).get(keyed[2], ""))
        return str(metadata[path.removeprefix("metadata.")])

    async def _data(self, resource: Resource, name: str, how: Object) -> dict[str, bytes]:
        try:
            found = await self._client.get(resource, name, self._namespace)
        except NotFoundError:
            if not how.get("optional"):
                raise
            return {}
        is_text = resource is CONFIG_MAPS
        data = {
            key: value.encode() if is_text else b64decode(value) for key, value in (found.get("data") or {}).items()
        }
        items = how.get("items")
        return {one["path"]: data[one["key"]] for one in items} if items else data

    def _write(self, folder: Path, files: dict[str, bytes], mode: int | None) -> None:
        self._make(folder, 0o755)
        # A group of the pod may read what its owner may.
        wide, group = mode if mode is not None else 0o644, self._group()
        replace_files(folder, files, wide | ((wide & 0o400) >> 3 if group else 0), group)

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
            "spec.nodeName": self._node.name,
            "spec.serviceAccountName": self._pod["spec"].get("serviceAccountName", "default"),
            "status.podIP": address,
            "status.hostIP": host_ip,
        }
        found: dict[str, str] = {}
        for variable in container.get("env", []):
            match variable:
                case {"valueFrom": {"fieldRef": {"fieldPath": path}}}:
                    value = fields[path] if path in fields else self._field(path)
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


def _mode(volume: Object) -> int | None:
    """The mode of the files of a volume with one source."""
    (source,) = (value for key, value in volume.items() if key != "name")
    mode: int | None = source.get("defaultMode")
    return mode


def _always(files: dict[str, bytes]) -> Read:
    async def read() -> dict[str, bytes]:
        return files

    return read


async def _read(sources: Sequence[Read]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for source in sources:
        found |= await source()
    return found


def _expanded(text: str, environ: dict[str, str]) -> str:
    for name, value in environ.items():
        text = text.replace(f"$({name})", value)
    return text


def expanded(words: list[str], environ: dict[str, str]) -> list[str]:
    """A command with the variables that it refers to."""
    return [_expanded(word, environ) for word in words]
