"""An API server that holds service accounts against RBAC, remembers what they ask, and somebody who runs their jobs.

The token of an account is `<namespace>:<name>`, that of its pod on a node `<namespace>:<name>@<node>`. The embedded
server lets everybody in as an administrator; here a request with such a token is made in the account's name, so that
the roles that are installed decide about it.
"""

import asyncio
import os
import sys
from base64 import b64decode
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

from gpuledger.api.kinds import JOBS, SECRETS, Resource
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.reflector import ChangeBatch, Listed, Reflector
from gpuledger.local.kubeapi.admission import ServicePlaces
from gpuledger.local.kubeapi.errors import ApiError
from gpuledger.local.kubeapi.kubeconfig import kubeconfig, write_kubeconfig
from gpuledger.local.kubeapi.resources import timestamp
from gpuledger.local.kubeapi.server import ApiServer
from gpuledger.runtime.clock import system_clock
from support.kube_fleet import create
from support.pod_files import PodFiles
from support.up import COMMAND

ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role", namespaced=True)
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", namespaced=True)
APPLY = "application/apply-patch+yaml"
VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
ADMIN = ""
"""Stands for the administrator among accounts."""

POD_NODE = "node-of-pods"
"""The node on which every pod runs."""

JOB_MAX_S = 180.0
"""How long a job may take, which may wait for servers that are only starting."""

Object = dict[str, Any]


class Permission(NamedTuple):
    """What RBAC decides about."""

    verb: str
    group: str
    resource: str
    name: str = ""
    namespace: str = ""


class AccountServer(ApiServer):
    """Remembers what each account asked, and what it was refused; it allows the components' privileged containers."""

    def __init__(self, services: ServicePlaces | None = None) -> None:
        super().__init__(services=services, allow_privileged=True)
        self.requested: defaultdict[str, set[Permission]] = defaultdict(set)
        self.refused: list[str] = []

    async def _routed(self, http: web.Request, warnings: list[str]) -> web.StreamResponse:
        account, _, node = http.headers.get("Authorization", "").partition(" ")[2].partition("@")
        if not account:
            return await super()._routed(http, warnings)
        if (permission := permission_of(http)) is not None:
            self.requested[account].add(permission)
        headers = http.headers.copy()
        headers["Impersonate-User"] = f"system:serviceaccount:{account}"
        if node:
            headers["Impersonate-Extra-authentication.kubernetes.io%2Fnode-name"] = node
        try:
            response = await super()._routed(http.clone(headers=headers), warnings)
        except ApiError as error:
            if error.code == 403:
                self.refused.append(error.message)
            raise
        if permission is not None and response.status == 201 and http.headers.get("Content-Type") == APPLY:
            self.requested[account].add(permission._replace(verb="create"))  # what an apply creates needs both rights
        return response


def permission_of(http: web.Request) -> Permission | None:
    """What a request is to RBAC; None for what is no resource, which discovery is for everybody."""
    parts = http.path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1] if len(parts) > 1 else "", parts[3:])
    if not rest:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    resource, name, subresource = [*rest, "", ""][:3]
    verb = VERBS[http.method]
    if verb == "get" and not name:
        verb = "watch" if "watch" in http.query else "list"
    return Permission(verb, group, f"{resource}/{subresource}" if subresource else resource, name, namespace)


def config_file(directory: Path, url: str, account: str, ca: bytes | None = None) -> Path:
    """The kubeconfig of an account, or of the administrator."""
    path = directory / f"kubeconfig.{account.replace(':', '.')}"
    write_kubeconfig(path, kubeconfig(url, ca, account))
    return path


class Ran(NamedTuple):
    """How a job's container ended, and its log."""

    code: int
    log: str


class Image(NamedTuple):
    """What containers run: a build's command, and where its Python finds the modules."""

    command: tuple[str, ...]
    python_path: str


THIS_TREE = Image(COMMAND, os.pathsep.join(sys.path))


class Kubelet:
    """Runs the containers of every Job that is not suspended, those that initialize first, as its account and with its
    environment, and records how the last one ended.

    `image` is what every container runs, whatever its pod names.
    """

    def __init__(self, client: KubeClient, directory: Path, files: PodFiles) -> None:
        self._client = client
        self._directory = directory
        self.image = THIS_TREE
        self.files = files
        self.ran: dict[str, Ran] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Kubelet"]:
        """Until the block ends."""
        work = asyncio.create_task(self._run())
        try:
            yield self
            assert not work.done(), work
        finally:
            work.cancel()
            await asyncio.wait([work])

    async def _run(self) -> None:
        seen: set[str] = set()
        reflector = Reflector(self._client, JOBS, lambda job: job)
        async with asyncio.TaskGroup() as running, aclosing(reflector.run()) as events:
            async for one in events:
                jobs = one.objects if isinstance(one, Listed) else []
                if isinstance(one, ChangeBatch):
                    jobs = [change.object for change in one.changes if change.type != "DELETED"]
                for job in jobs:
                    if job["metadata"]["uid"] not in seen and not job["spec"]["suspend"]:
                        seen.add(job["metadata"]["uid"])
                        running.create_task(self._finish(job))

    async def _finish(self, job: Object) -> None:
        metadata, name, begun = job["metadata"], job["metadata"]["name"], timestamp(system_clock())
        pod, ran = job["spec"]["template"]["spec"], Ran(0, "")
        for one in (*pod.get("initContainers", ()), *pod["containers"]):
            ran = await self.container(metadata["namespace"], {**pod, "containers": [one]}, name)
            if ran.code:
                break
        self.ran[name] = ran
        kinds = ("SuccessCriteriaMet", "Complete") if ran.code == 0 else ("FailureTarget", "Failed")
        now = timestamp(system_clock())
        conditions = [{"type": kind, "status": "True", "reason": "Ended", "lastTransitionTime": now} for kind in kinds]
        counted = {"succeeded": 1, "completionTime": now} if ran.code == 0 else {"failed": 1}
        status = {"startTime": begun, "conditions": conditions, **counted}
        await self._client.merge_patch(JOBS, name, {"status": status}, metadata["namespace"], subresource="status")

    async def environment(self, namespace: str, pod: Object, owner: str) -> dict[str, str]:
        """The environment of a pod's container; a kubeconfig stands for the token of its account."""
        (container,), folders = pod["containers"], await self.files.mount(namespace, pod, owner)
        environ = {"PATH": os.environ["PATH"], "PYTHONPATH": self.image.python_path}
        for variable in container["env"]:
            environ[variable["name"]] = self.files.here(await self._value(namespace, variable), folders)
        if pod["automountServiceAccountToken"]:
            account = f"{namespace}:{pod['serviceAccountName']}"
            environ["KUBECONFIG"] = str(config_file(self._directory, self._client.url, account))
        return environ

    async def container(self, namespace: str, pod: Object, owner: str) -> Ran:
        """Run the container of a pod to its end."""
        (container,), environ = pod["containers"], await self.environment(namespace, pod, owner)
        folders = await self.files.mount(namespace, pod, owner)
        arguments = [self.files.here(one, folders) for one in container["args"]]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self.image.command, *arguments, env=environ, stdout=pipe, stderr=asyncio.subprocess.STDOUT
        )
        try:
            async with asyncio.timeout(JOB_MAX_S):
                log, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()
        return Ran(process.returncode or 0, log.decode())

    async def _value(self, namespace: str, variable: Object) -> str:
        if "value" in variable:
            return str(variable["value"])
        source = variable["valueFrom"]
        if "fieldRef" in source:
            return {"metadata.namespace": namespace, "spec.nodeName": POD_NODE}[source["fieldRef"]["fieldPath"]]
        reference = source["secretKeyRef"]
        secret = await self._client.get(SECRETS, reference["name"], namespace)
        return b64decode(secret["data"][reference["key"]]).decode()


async def let_get(admin: KubeClient, account: str, *resources: tuple[str, str]) -> None:
    """Let an account get these resources, by group and name, in its own namespace, which is there."""
    namespace, _, name = account.partition(":")
    metadata = {"name": name, "namespace": namespace}
    rules = [{"apiGroups": [group], "resources": [resource], "verbs": ["get"]} for group, resource in resources]
    await create(admin, ROLES, {"metadata": metadata, "rules": rules})
    role = {"apiGroup": ROLES.group, "kind": ROLES.kind, "name": name}
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]
    await create(admin, BINDINGS, {"metadata": metadata, "roleRef": role, "subjects": subjects})
