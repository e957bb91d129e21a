"""The Kubernetes API as one node's agent uses it: its own Node by name, configurations by name, four annotations.

The Node comes as its metadata alone: what the kubelet reports in its status, images above all, is many times as large.
"""

from collections.abc import AsyncGenerator, Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, urlencode

from gpuledger.api.kinds import FIELD_MANAGER, NODES, RENDERED_MACHINE_CONFIGS
from gpuledger.configagent.errors import ApiError, RenderedMissingError
from gpuledger.configagent.kube_http import JSON, KubeHttp, Request

WATCH_S: Final = 300
"""After so long the server ends the watch, and the agent begins another."""

WATCH_GRACE_S: Final = 30.0
MERGE_PATCH: Final = "application/merge-patch+json"
_NODES: Final = NODES.path()
METADATA: Final = f"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,{JSON}"
METADATA_LIST: Final = f"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,{JSON}"


class KubeNodeApi:
    """A `gpuledger.configagent.api.NodeApi` over HTTP."""

    def __init__(self, http: KubeHttp, node: str) -> None:
        self._http = http
        self._node = node

    async def node(self) -> AsyncGenerator[Mapping[str, str]]:
        """The annotations of the Node, first as they are and then at each change; raises ApiError."""
        query = {"fieldSelector": f"metadata.name={self._node}"}
        listed = await self._http.send(Request("GET", f"{_NODES}?{urlencode(query)}", accept=METADATA_LIST))
        items = listed.get("items") or []
        if len(items) != 1:
            raise ApiError(f"There is no Node {self._node} at {self._http.url}; give its name in NODE_NAME.")
        yield _annotations(items[0])
        version = str((listed.get("metadata") or {}).get("resourceVersion", ""))
        query |= {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(WATCH_S)}
        request = Request("GET", f"{_NODES}?{urlencode(query)}", accept=METADATA)
        async for event in self._http.lines(request, WATCH_S + WATCH_GRACE_S):
            if event.get("type") in ("ADDED", "MODIFIED"):
                yield _annotations(event["object"])
            elif event.get("type") == "ERROR":
                raise _interrupted(event.get("object") or {})

    async def rendered(self, name: str) -> Any:  # noqa: ANN401 - the object as JSON
        """A RenderedMachineConfig, as JSON; raises RenderedMissingError and ApiError."""
        path = f"{RENDERED_MACHINE_CONFIGS.path()}/{quote(name, safe='')}"
        try:
            return await self._http.send(Request("GET", path))
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                raise RenderedMissingError(
                    f"There is no RenderedMachineConfig {name}, which the Node is to have. The service `rollout` "
                    f"writes it; see `kubectl get machineconfigpools`.",
                    error.status,
                ) from error
            raise

    async def patch(self, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of the Node; None removes one. Raises ApiError."""
        path = f"{_NODES}/{quote(self._node, safe='')}?{urlencode({'fieldManager': FIELD_MANAGER})}"
        body = {"metadata": {"annotations": dict(annotations)}}
        await self._http.send(Request("PATCH", path, body, MERGE_PATCH, METADATA))


def _annotations(document: Mapping[str, Any]) -> dict[str, str]:
    return dict((document.get("metadata") or {}).get("annotations") or {})


def _interrupted(status: Mapping[str, Any]) -> ApiError:
    """An error within a watch; 410 says that it has to begin anew, as it does after every error."""
    return ApiError(f"The watch of the Node broke off: {status.get('message', 'no message')}", status.get("code"))
