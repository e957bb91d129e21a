"""Writes what the plans of workloads say: pods come and go, and statuses follow; one pass over the whole cluster."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from gpuledger.api.kinds import DAEMON_SETS, DEPLOYMENTS, JOBS, NAMESPACES, NODES, PODS, Resource
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import AlreadyExistsError, KubeError, NotFoundError
from gpuledger.runtime.clock import system_clock
from support.kube_fleet import STORAGE_CLASSES, create
from support.pods import workloads
from support.pods.workloads import Plan

STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet", namespaced=True)
CLAIMS: Final = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", namespaced=True)
VOLUMES: Final = Resource("", "v1", "persistentvolumes", "PersistentVolume")
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)

Object = dict[str, Any]


class Workloads:
    """The controllers of one cluster."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._number = 0

    async def run_once(self) -> None:
        """One pass."""
        await self._make_accounts()
        pods = (await self._client.list(PODS)).items
        nodes = (await self._client.list(NODES)).items
        now = system_clock().strftime("%Y-%m-%dT%H:%M:%SZ")
        for job in await self._of(JOBS):
            if not workloads.is_finished(job):
                await self._follow(JOBS, job, workloads.job_plan(job, _owned(job, pods, leaving=True), now))
        for one in await self._of(DEPLOYMENTS):
            self._number += 1
            await self._follow(DEPLOYMENTS, one, workloads.deployment_plan(one, _owned(one, pods), self._number))
        for one in await self._of(DAEMON_SETS):
            plan = workloads.daemon_set_plan(one, _owned(one, pods, leaving=True), nodes)
            await self._follow(DAEMON_SETS, one, plan)
        await self._bind_claims()
        for one in await self._of(STATEFUL_SETS):
            await self._make_claims(one)
            await self._follow(STATEFUL_SETS, one, workloads.stateful_set_plan(one, _owned(one, pods, leaving=True)))

    async def _of(self, resource: Resource) -> list[Object]:
        found = (await self._client.list(resource)).items
        present = [one for one in found if not one["metadata"].get("deletionTimestamp")]
        return [{**one, "kind": resource.kind} for one in present]

    async def _follow(self, resource: Resource, one: Object, plan: Plan) -> None:
        namespace, name = one["metadata"]["namespace"], one["metadata"]["name"]
        for pod in plan.create:
            # Quotas, webhooks and races may refuse it; the next pass tries again.
            with suppress(KubeError):
                await create(self._client, PODS, pod)
        for pod in plan.delete:
            if not pod["metadata"].get("deletionTimestamp"):
                with suppress(NotFoundError):
                    await self._client.delete(PODS, pod["metadata"]["name"], namespace)
        if plan.status != {key: one.get("status", {}).get(key) for key in plan.status}:
            with suppress(NotFoundError):
                await self._client.merge_patch(resource, name, {"status": plan.status}, namespace, subresource="status")

    async def _make_claims(self, stateful_set: Object) -> None:
        metadata, spec = stateful_set["metadata"], stateful_set["spec"]
        for template in spec.get("volumeClaimTemplates", []):
            for number in range(spec.get("replicas", 1)):
                name = f"{template['metadata']['name']}-{metadata['name']}-{number}"
                own = {"name": name, "namespace": metadata["namespace"], "labels": template["metadata"].get("labels")}
                with suppress(AlreadyExistsError):
                    await create(self._client, CLAIMS, {"metadata": own, "spec": template["spec"]})

    async def _bind_claims(self) -> None:
        """Give claims volumes of their class, or where they name none and there is a default class, new folders."""
        free = [one for one in (await self._client.list(VOLUMES)).items if not one["spec"].get("claimRef")]
        for claim in (await self._client.list(CLAIMS)).items:
            metadata, spec = claim["metadata"], claim["spec"]
            if spec.get("volumeName"):
                continue
            fitting = [one for one in free if one["spec"].get("storageClassName") == spec.get("storageClassName")]
            if fitting:
                free.remove(fitting[0])
                name = fitting[0]["metadata"]["name"]
            elif "storageClassName" not in spec and (await self._client.list(STORAGE_CLASSES)).items:
                name = f"pvc-{metadata['uid']}"
                await create(self._client, VOLUMES, {"metadata": {"name": name}, "spec": _folder_of(claim)})
            else:
                continue
            owner = {"kind": "PersistentVolumeClaim", **{key: metadata[key] for key in ("namespace", "name", "uid")}}
            await self._client.merge_patch(VOLUMES, name, {"spec": {"claimRef": owner}})
            await self._client.merge_patch(
                CLAIMS, metadata["name"], {"spec": {"volumeName": name}}, metadata["namespace"]
            )

    async def _make_accounts(self) -> None:
        present = {
            one["metadata"]["namespace"]
            for one in (await self._client.list(SERVICE_ACCOUNTS)).items
            if one["metadata"]["name"] == "default"
        }
        for namespace in await self._of(NAMESPACES):
            if (name := namespace["metadata"]["name"]) not in present:
                with suppress(KubeError):
                    await create(self._client, SERVICE_ACCOUNTS, {"metadata": {"name": "default", "namespace": name}})


def _folder_of(claim: Object) -> Object:
    """The volume that is a new folder of the node that the pod comes to."""
    metadata, spec = claim["metadata"], claim["spec"]
    path = f"/volumes/{metadata['namespace']}/{metadata['name']}"
    sizes = {"capacity": spec["resources"]["requests"], "accessModes": spec["accessModes"]}
    return {**sizes, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}


def _owned(owner: Object, pods: Iterable[Object], *, leaving: bool = False) -> list[Object]:
    """The pods of an owner, without or with those that are on their way out."""
    return [
        pod
        for pod in pods
        if any(one["uid"] == owner["metadata"]["uid"] for one in pod["metadata"].get("ownerReferences", []))
        and (leaving or not pod["metadata"].get("deletionTimestamp"))
    ]
