"""A file of a node by its MachineConfig: applied, held back by a pause, rolled back, removed.

The file is looked at where it lies, by a pod that mounts the node's folder; what gpuledger decided is in the pool and
the Node.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from cluster.tools import Object, StepError, Tools, wait

GROUP: Final = "mco.in-cloud.io"
POOL: Final = "gpuledger-check"
CONFIG: Final = "gpuledger-check"
LABEL: Final = "gpuledger-check/configured"
FILE: Final = "gpuledger-check.conf"
TEAM: Final = "gpuledger-check-config"
POOLS: Final = f"machineconfigpools.{GROUP}"
CONFIGS: Final = f"machineconfigs.{GROUP}"
RENDERED: Final = f"renderedmachineconfigs.{GROUP}"
PINNED: Final = f"{GROUP}/pinned-revision"
FOLDER: Final = "/etc"
ABSENT: Final = "absent"

APPLIED_S: Final = 180.0
PODS_S: Final = 120.0
GONE_S: Final = 180.0

LOOK: Final = """
import pathlib
file = pathlib.Path("/looked-at/{file}")
print(file.read_text() if file.exists() else "{absent}", end="", flush=True)
"""


def machine_config_values() -> dict[str, str]:
    """The values by which a release has agents of machine configuration."""
    return {"machineConfig.enabled": "true"}


class Look(Protocol):
    """Looks at the file of a node."""

    def begin(self) -> None:
        """Make what is needed for it."""

    def content(self, node: str) -> str | None:
        """What the file has; None where there is none."""

    def end(self) -> None:
        """Remove what was made."""


class PodLook:
    """Looks at the file by pods, in a namespace of their own."""

    def __init__(self, tools: Tools, image: str) -> None:
        self._tools = tools
        self._image = image
        self._looks = 0

    def begin(self) -> None:
        """Make the namespace."""
        self._tools.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
        wait("the namespace has its service account", self._without_account, PODS_S)

    def content(self, node: str) -> str | None:
        """Run a pod that prints the file."""
        self._looks += 1
        name = f"look-{self._looks}"
        self._tools.apply(self._pod(name, node))
        wait(f"pod {name} has ended", partial(self._not_ended, name), PODS_S)
        found = self._tools.kubectl("--namespace", TEAM, "logs", name)
        return None if found == ABSENT else found

    def end(self) -> None:
        """Remove the namespace."""
        self._tools.kubectl("delete", "namespace", TEAM, f"--timeout={GONE_S:.0f}s", timeout_s=GONE_S + 10)

    def _pod(self, name: str, node: str) -> Object:
        command = ["python", "-c", LOOK.format(file=FILE, absent=ABSENT)]
        mount = {"name": "folder", "mountPath": "/looked-at", "readOnly": True}
        container = {"name": "main", "image": self._image, "command": command, "volumeMounts": [mount]}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": TEAM},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "nodeName": node,
                "tolerations": [{"operator": "Exists"}],
                "volumes": [{"name": "folder", "hostPath": {"path": FOLDER, "type": "Directory"}}],
                "containers": [container],
            },
        }

    def _not_ended(self, name: str) -> str:
        phase = self._tools.one("pod", name, "--namespace", TEAM).get("status", {}).get("phase")
        return "" if phase == "Succeeded" else f"it is {phase}"

    def _without_account(self) -> str:
        names = [one["metadata"]["name"] for one in self._tools.items("serviceaccounts", "--namespace", TEAM)]
        return "" if "default" in names else f"there are {names}"


class MachineConfigs:
    """One node in a pool of its own; a step's first line says what it is about."""

    def __init__(self, tools: Tools, look: Look, node: Callable[[], str]) -> None:
        self._tools = tools
        self._look = look
        self._choose = node
        self._node = ""
        self._first = ""

    def steps(self) -> tuple[Callable[[], None], ...]:
        """All steps, in order."""
        return self.begin, self.pause, self.resume, self.roll_back, self.end

    def begin(self) -> None:
        """A pool and a configuration come: the node has the file, its agent reports done, and the pool is Ready."""
        self._node = node = self._choose()
        self._look.begin()
        self._tools.kubectl("label", "node", node, f"{LABEL}=true")
        self._tools.apply(self._pool(), _config("one"))
        self._settled("one")
        self._first = self._target()

    def pause(self) -> None:
        """The configuration changes while the pool is paused: the node keeps what it has."""
        self._patch({"spec": {"paused": True}})
        self._tools.apply(_config("two"))
        wait("the pool has a new target", self._target_is_old, APPLIED_S)
        if (found := self._annotation("desired-revision")) != self._first:
            raise StepError(f"the pool is paused, and node {self._node} is to have {found}")
        self._expect_file("one")

    def resume(self) -> None:
        """The pause ends, and the node gets the new revision."""
        self._patch({"spec": {"paused": False}})
        self._settled("two")

    def roll_back(self) -> None:
        """The pool is pinned to its first revision, which the node gets back; unpinned, it goes to the newest."""
        self._patch({"metadata": {"annotations": {PINNED: self._first}}})
        self._settled("one")
        if self._target() != self._first:
            raise StepError(f"the pool is pinned to {self._first}, and goes to {self._target()}")
        self._patch({"metadata": {"annotations": {PINNED: None}}})
        self._settled("two")

    def end(self) -> None:
        """The configuration removes its file; it and its pool go, and nothing is left of them."""
        tools = self._tools
        tools.apply(_config(None))
        self._settled(None)
        tools.kubectl("delete", POOLS, POOL, f"--timeout={GONE_S:.0f}s", timeout_s=GONE_S + 10)
        tools.kubectl("delete", CONFIGS, CONFIG)
        wait("the rendered configurations are gone", self._still_rendered, GONE_S)
        wait(f"node {self._node} has no annotation of gpuledger's", self._still_desired, GONE_S)
        tools.kubectl("label", "node", self._node, f"{LABEL}-")
        self._look.end()

    def expect_no_annotations(self) -> None:
        """The uninstalled release has left no annotation of machine configuration on any node.

        Raises:
            StepError: it has.
        """
        for node in self._tools.items("nodes"):
            if left := _annotations(node):
                raise StepError(f"node {node['metadata']['name']} still has {left}")

    def _pool(self) -> Object:
        spec = {
            "nodeSelector": {"matchLabels": {LABEL: "true"}},
            "machineConfigSelector": {"matchLabels": {f"{GROUP}/pool": POOL}},
            "rollout": {"debounceSeconds": 1, "applyTimeoutSeconds": 120},
        }
        return {
            "apiVersion": f"{GROUP}/v1alpha1",
            "kind": "MachineConfigPool",
            "metadata": {"name": POOL},
            "spec": spec,
        }

    def _patch(self, change: Object) -> None:
        self._tools.kubectl("patch", POOLS, POOL, "--type=merge", f"--patch={json.dumps(change)}")

    def _status(self) -> Object:
        status: Object = self._tools.one(POOLS, POOL).get("status", {})
        return status

    def _target(self) -> str:
        return str(self._status().get("targetRevision", ""))

    def _target_is_old(self) -> str:
        target = self._target()
        return f"it is {target!r}" if target in ("", self._first) else ""

    def _annotation(self, name: str) -> str:
        return _annotations(self._tools.one("node", self._node)).get(f"{GROUP}/{name}", "")

    def _settled(self, content: str | None) -> None:
        """Wait until the pool is Ready with a revision that has this content, and the file is so."""
        wait(f"the pool goes to a revision with {content!r}", partial(self._not_targeted, content), APPLIED_S)
        wait(f"node {self._node} has applied it", self._not_applied, APPLIED_S)
        wait("the pool is Ready", self._not_ready, APPLIED_S)
        self._expect_file(content)

    def _not_targeted(self, content: str | None) -> str:
        target = self._target()
        if not target:
            return f"its status is {json.dumps(self._status())}"
        if target not in {one["metadata"]["name"] for one in self._tools.items(RENDERED)}:
            return f"{target} is not there"
        (file,) = self._tools.one(RENDERED, target)["spec"]["config"]["files"]
        is_so = file.get("state") == ABSENT if content is None else file.get("content") == content
        return "" if is_so else f"{target} has {file}"

    def _not_applied(self) -> str:
        found = _annotations(self._tools.one("node", self._node))
        has = (found.get(f"{GROUP}/current-revision"), found.get(f"{GROUP}/agent-state"))
        return "" if has == (self._target(), "done") else f"its annotations are {found}"

    def _not_ready(self) -> str:
        status = self._status()
        ready = [one for one in status.get("conditions", []) if (one["type"], one["status"]) == ("Ready", "True")]
        counts = (status.get("machineCount"), status.get("updatedMachineCount"), status.get("degradedMachineCount", 0))
        return "" if ready and counts == (1, 1, 0) else f"its status is {json.dumps(status)}"

    def _expect_file(self, content: str | None) -> None:
        """Look at the file on the node.

        Raises:
            StepError: it is not so.
        """
        if (found := self._look.content(self._node)) != content:
            raise StepError(f"{FOLDER}/{FILE} of node {self._node} has {found!r}, and not {content!r}")

    def _still_rendered(self) -> str:
        return (
            f"there are {found}" if (found := [one["metadata"]["name"] for one in self._tools.items(RENDERED)]) else ""
        )

    def _still_desired(self) -> str:
        found = _annotations(self._tools.one("node", self._node))
        return f"it has {found}" if f"{GROUP}/desired-revision" in found or f"{GROUP}/pool" in found else ""


def _config(content: str | None) -> Object:
    """The configuration with a file of this content, or with none."""
    path = f"{FOLDER}/{FILE}"
    file = {"path": path, "state": ABSENT} if content is None else {"path": path, "content": content}
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "MachineConfig",
        "metadata": {"name": CONFIG, "labels": {f"{GROUP}/pool": POOL}},
        "spec": {"files": [file]},
    }


def _annotations(node: Object) -> dict[str, str]:
    found: dict[str, str] = node["metadata"].get("annotations") or {}
    return {name: value for name, value in found.items() if name.startswith(f"{GROUP}/")}
