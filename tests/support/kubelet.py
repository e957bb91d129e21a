"""A kubelet as its device plugins see it: it registers them, follows their lists, allocates, and lists allocations.

It behaves as the real one: it dials back before a registration is answered, marks devices unhealthy
when a plugin's stream ends, drops the resource after five minutes (of `now`, which only `advance` moves), and wipes
its plugins' folder when it begins. Like those before 1.35 it knows plugins by their resources alone: it leaves the
stream before a new registration open, and when that ends, it is the new plugin that it disconnects.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from gpuledger.agent.kubelet.deviceplugin_pb2 import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    ContainerAllocateResponse,
    ContainerPreferredAllocationRequest,
    Device,
    DevicePluginOptions,
    Empty,
    ListAndWatchResponse,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    RegisterRequest,
)
from gpuledger.agent.kubelet.podresources_pb2 import (
    ContainerDevices,
    ListPodResourcesRequest,
    ListPodResourcesResponse,
)
from gpuledger.runtime.tasks import end

VERSION: Final = "v1beta1"
ID_LENGTH_MAX: Final = 63
GRACE_S: Final = 300.0
DIAL_TIMEOUT_S: Final = 2.0
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?").fullmatch
_GROUP: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*").fullmatch
LOCAL: Final = (("grpc.use_local_subchannel_pool", 1),)


@dataclass
class Registered:
    """A resource as its plugin listed it; `lost_at` is when the stream ended."""

    request: RegisterRequest
    channel: grpc.aio.Channel
    options: DevicePluginOptions = field(default_factory=DevicePluginOptions)
    devices: dict[str, Device] = field(default_factory=dict)
    lists: list[dict[str, str]] = field(default_factory=list)
    lost_at: float | None = None
    following: "asyncio.Task[None] | None" = None

    @property
    def healthy(self) -> list[str]:
        """Devices that may be allocated."""
        return [] if self.lost_at is not None else [i for i, one in self.devices.items() if one.health == "Healthy"]

    def method(self, name: str, answer: Any) -> Any:
        """One of the plugin's methods, to be called."""
        path = f"/v1beta1.DevicePlugin/{name}"
        return self.channel.unary_unary(
            path,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )


class FakeKubelet:
    """A kubelet on sockets in two folders of `root`; `held` are devices by container and resource."""

    def __init__(self, root: Path) -> None:
        self._following: list[Registered] = []
        self._mixing_up: set[asyncio.Task[None]] = set()
        self.plugins = root / "device-plugins"
        self.pods_socket = root / "pod-resources" / "kubelet.sock"
        self.plugins.mkdir(exist_ok=True)
        self.pods_socket.parent.mkdir(exist_ok=True)
        self.now = 0.0
        self.resources: dict[str, Registered] = {}
        self.registrations: list[RegisterRequest] = []
        self.refusals: list[str] = []
        self.undialled: list[str] = []
        """Endpoints that registered and did not answer; one whose agent was killed meanwhile cannot."""
        self.complaints: list[str] = []
        self.held: dict[tuple[str, str, str], dict[str, list[str]]] = {}
        self.pods: set[tuple[str, str]] = set()
        """Its pods, by namespace and name: also the one that it is about to admit, and those that it rejected."""
        self.unlisted: set[tuple[str, str, str]] = set()
        """Init containers, which its list leaves out."""
        self.lists_served = 0
        self.hides_pods = False
        """It began a moment ago, and has not read its pods yet."""
        self.notices = asyncio.Event()
        """While it is not set, the kubelet has other things to do than to see that a stream ended."""
        self.notices.set()
        self.refuses_lists = False
        """Other clients request lists more often than it answers."""
        self._servers: list[grpc.aio.Server] = []

    async def start(self) -> None:
        """Wipe the plugins' folder, then serve."""
        for path in self.plugins.iterdir():
            path.unlink()
        self.pods_socket.unlink(missing_ok=True)
        unary = grpc.unary_unary_rpc_method_handler
        register = unary(self._register, RegisterRequest.FromString, Empty.SerializeToString)
        listing = unary(self._list, ListPodResourcesRequest.FromString, ListPodResourcesResponse.SerializeToString)
        await self._serve(self.plugins / "kubelet.sock", "v1beta1.Registration", {"Register": register})
        await self._serve(self.pods_socket, "v1.PodResourcesLister", {"List": listing})

    async def _serve(self, path: Path, service: str, methods: dict[str, Any]) -> None:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        self._servers.append(server)

    async def stop(self) -> None:
        """End; what containers have stands in its checkpoint, and its sockets may lie there still."""
        following, self._following = self._following, []
        for registered in following:
            await self._forget(registered)
        await asyncio.gather(*self._mixing_up)
        servers, self._servers = self._servers, []
        for server in servers:
            await server.stop(None)

    async def restart(self) -> None:
        """End, and begin anew."""
        await self.stop()
        await self.start()

    async def end_stream(self, resource: str) -> None:
        """End a plugin's stream from this side alone."""
        await self._forget(self.resources[resource])

    def advance(self, seconds: float) -> None:
        """Let time pass; resources whose plugin is gone for too long are dropped."""
        self.now += seconds
        lost = [n for n, one in self.resources.items() if one.lost_at is not None and self.now - one.lost_at >= GRACE_S]
        for name in lost:
            del self.resources[name]

    def health(self, resource: str) -> dict[str, str]:
        """What it thinks of each device."""
        plugin = self.resources.get(resource)
        healthy = plugin.healthy if plugin else []
        return {name: "Healthy" if name in healthy else "Unhealthy" for name in (plugin.devices if plugin else {})}

    async def allocate(
        self,
        resource: str,
        count: int,
        pod: str,
        container: str = "main",
        *,
        after: str = "",
        namespace: str = "default",
    ) -> ContainerAllocateResponse:
        """Give a container of a pod so many devices, as its plugin prefers.

        It reuses the units of the init container `after` which it comes, whatever the plugin prefers.
        """
        self.pods.add((namespace, pod))
        plugin = self.resources[resource]
        taken = {name for had in self.held.values() for name in had.get(resource, [])}
        again = sorted(self.held.get((namespace, pod, after), {}).get(resource, []))[:count]
        free = sorted(set(plugin.healthy) - taken)
        if len(again) + len(free) < count:
            raise LookupError(f"{count} of {resource} were asked for, {len(free)} are left")
        has_preference = plugin.options.get_preferred_allocation_available and len(again) < count
        preferred = await self._preferred(plugin, free, again, count) if has_preference else []
        chosen = (again + preferred + [name for name in free if name not in preferred])[:count]
        request = AllocateRequest(container_requests=[ContainerAllocateRequest(devices_ids=chosen)])
        answer: AllocateResponse = await plugin.method("Allocate", AllocateResponse)(request)
        self.held.setdefault((namespace, pod, container), {}).setdefault(resource, []).extend(chosen)
        return answer.container_responses[0]

    async def _preferred(self, plugin: Registered, free: list[str], again: list[str], count: int) -> list[str]:
        one = ContainerPreferredAllocationRequest(
            available_deviceIDs=sorted(free + again), must_include_deviceIDs=again, allocation_size=count
        )
        request = PreferredAllocationRequest(container_requests=[one])
        answer: PreferredAllocationResponse = await plugin.method(
            "GetPreferredAllocation", PreferredAllocationResponse
        )(request)
        names = list(answer.container_responses[0].deviceIDs)
        if len(names) != count or len(set(names)) != count or not set(again) <= set(names) <= {*free, *again}:
            self.complaints.append(f"{names} are not {count} of {free} with {again}")
        return [name for name in names if name in free]

    def release(self, pod: str) -> None:
        """The pod's containers are gone, and the plugin gets no notice."""
        self.pods = {key for key in self.pods if key[1] != pod}
        self.held = {key: had for key, had in self.held.items() if key[1] != pod}
        self.unlisted = {key for key in self.unlisted if key[1] != pod}

    async def _register(self, request: RegisterRequest, context: Any) -> Empty:
        self.registrations.append(request)
        reason = _unacceptable(request)
        if reason is not None:
            self.refusals.append(reason)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
        before = self.resources.get(request.resource_name)
        channel = grpc.aio.insecure_channel(f"unix:{self.plugins / request.endpoint}", options=LOCAL)
        registered = Registered(request, channel, devices=before.devices if before else {})
        try:
            registered.options = await registered.method("GetDevicePluginOptions", DevicePluginOptions)(
                Empty(), timeout=DIAL_TIMEOUT_S
            )
        except grpc.aio.AioRpcError as error:
            await channel.close()
            self.undialled.append(request.endpoint)
            await context.abort(grpc.StatusCode.UNKNOWN, f"failed to dial device plugin: {error.details()}")
        registered.lists = before.lists if before else []
        self._following.append(registered)
        self.resources[request.resource_name] = registered
        registered.following = asyncio.create_task(self._follow(registered))
        return Empty()

    async def _follow(self, registered: Registered) -> None:
        watch = registered.channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=Empty.SerializeToString,
            response_deserializer=ListAndWatchResponse.FromString,
        )(Empty())
        try:
            async for message in watch:
                if any(len(one.ID) > ID_LENGTH_MAX for one in message.devices):
                    self.complaints.append(f"{registered.request.resource_name} has ids that are too long")
                    return
                registered.devices = {one.ID: one for one in message.devices}
                registered.lists.append({one.ID: one.health for one in message.devices})
        except grpc.aio.AioRpcError:
            return
        finally:
            watch.cancel()
            await self.notices.wait()
            registered.lost_at = self.now
            self._disconnect(registered)

    def _disconnect(self, ended: Registered) -> None:
        """A stream ended: so did the plugin of its resource, whichever that is by now."""
        now = self.resources.get(ended.request.resource_name)
        if now is not None and now is not ended and now.lost_at is None and ended in self._following:
            now.lost_at = self.now
            task = asyncio.create_task(self._forget(now))
            self._mixing_up.add(task)
            task.add_done_callback(self._mixing_up.discard)
        if ended in self._following:
            self._following.remove(ended)

    async def _forget(self, registered: Registered) -> None:
        if registered.following is not None:
            await end([registered.following])
        registered.lost_at = self.now if registered.lost_at is None else registered.lost_at
        await registered.channel.close()

    async def _list(self, _: ListPodResourcesRequest, context: Any) -> ListPodResourcesResponse:
        self.lists_served += 1
        if self.refuses_lists:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        answer = ListPodResourcesResponse()
        if not self.hides_pods:
            answer.pod_resources.add(name="agent", namespace="gpuledger").containers.add(name="agent")
        listed = {key: had for key, had in self.held.items() if not self.hides_pods and key not in self.unlisted}
        names = {} if self.hides_pods else dict.fromkeys((*sorted(self.pods), *(key[:2] for key in listed)))
        pods = {key: answer.pod_resources.add(namespace=key[0], name=key[1]) for key in names}
        for (namespace, pod, container), had in listed.items():
            device_lists = pods[namespace, pod].containers.add(name=container)
            device_lists.devices.extend(
                ContainerDevices(resource_name=name, device_ids=[one]) for name, ids in had.items() for one in ids
            )
        return answer


def _unacceptable(request: RegisterRequest) -> str | None:
    if request.version != VERSION:
        return f"version {request.version!r} is not supported; {VERSION} is"
    group, slash, name = request.resource_name.partition("/")
    if not (slash and _GROUP(group) and _NAME(name)) or group.endswith("kubernetes.io"):
        return f"{request.resource_name!r} is no name of an extended resource"
    return None


@asynccontextmanager
async def a_kubelet(root: Path) -> AsyncIterator[FakeKubelet]:
    """A kubelet that runs for the length of the block."""
    kubelet = FakeKubelet(root)
    await kubelet.start()
    try:
        yield kubelet
    finally:
        await kubelet.stop()
