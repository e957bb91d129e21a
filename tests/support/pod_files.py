"""The volumes of a pod as folders of this machine, and its container's paths and hosts as they are here."""

from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuledger.api.kinds import CONFIG_MAPS, SECRETS
from gpuledger.edge.kube.client import KubeClient

Object = dict[str, Any]
PRIVATE = 0o700


class PodFiles:
    """Folders for the mounts of pods, and `places`: where hosts and ports of the cluster are found here."""

    def __init__(self, client: KubeClient, root: Path) -> None:
        self._client = client
        self._root = root
        self.places: dict[str, str] = {}

    async def mount(self, namespace: str, pod: Object, owner: str) -> Mapping[str, str]:
        """The folder of each path that the container mounts; Secrets and ConfigMaps are written anew."""
        volumes = {one["name"]: one for one in pod.get("volumes") or ()}
        (container,) = pod["containers"]
        return {
            mount["mountPath"]: str(await self._folder(namespace, volumes.get(mount["name"]), owner, mount["name"]))
            for mount in container.get("volumeMounts") or ()
        }

    def here(self, text: str, folders: Mapping[str, str]) -> str:
        """A value or an argument of the container, as it is on this machine."""
        for host, place in self.places.items():
            text = text.replace(host, place)
        for path, folder in folders.items():
            if text == path or text.startswith(f"{path}/"):
                return folder + text.removeprefix(path)
        return text

    async def _folder(self, namespace: str, volume: Object | None, owner: str, name: str) -> Path:
        folder = self._root / owner / name
        folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        if volume is not None and "secret" in volume:
            source = volume["secret"]
            secret = await self._client.get(SECRETS, source["secretName"], namespace)
            _fill(folder, {key: b64decode(value) for key, value in secret["data"].items()}, source.get("items"))
        elif volume is not None and "configMap" in volume:
            source = volume["configMap"]
            found = await self._client.get(CONFIG_MAPS, source["name"], namespace)
            _fill(folder, {key: value.encode() for key, value in found["data"].items()}, source.get("items"))
        return folder


def _fill(folder: Path, data: Mapping[str, bytes], items: list[dict[str, str]] | None) -> None:
    for item in items or [{"key": key, "path": key} for key in data]:
        fresh = folder.with_name(f"{folder.name}.fresh")
        fresh.write_bytes(data[item["key"]])
        fresh.replace(folder / item["path"])
