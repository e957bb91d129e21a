"""Shares of a card: a node gives its cards to sharing, two pods share one, a third waits, and the node takes them back.

What the ledger says of cards and pods is asked in a pod of the services, as an administrator does, and compared with
what the cluster has: the Device of the node, its allocatable, the pods' annotations and their containers' variables.
"""

import json
from functools import partial
from typing import Any, Final

from cluster.tools import Object, StepError, Tools, wait

TEAM: Final = "gpuledger-check-shares"
DOMAIN: Final = "kooperator"
LABEL: Final = f"node.{DOMAIN}/gpu-sharing"
ALLOCATED: Final = f"scheduling.{DOMAIN}/device-allocated"
DEVICES: Final = f"devices.scheduling.{DOMAIN}"
CORE: Final = f"{DOMAIN}/gpu-core"
RATIO: Final = f"{DOMAIN}/gpu-memory-ratio"
MEMORY: Final = f"{DOMAIN}/gpu-memory"
WHOLE: Final = 100

SHARED_S: Final = 120.0
PODS_S: Final = 120.0
GONE_S: Final = 180.0

HOLD: Final = """
import os, time
names = ("NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_MEMORY_LIMIT_0", "CUDA_DEVICE_SM_LIMIT")
print(*(os.environ[name] for name in names), flush=True)
time.sleep(3600)
"""


def sharing_values() -> dict[str, str]:
    """The values by which a release has an extender, and a scheduler that asks it; pods go where others are."""
    return {
        "sharing.extender.enabled": "true",
        "sharing.extender.strategy": "MostAllocated",
        "sharing.scheduler.enabled": "true",
    }


class Sharing:
    """One node that shares its cards; a step's first line says what it is about."""

    def __init__(self, tools: Tools, image: str, cards_a_node: int) -> None:
        self._tools = tools
        self._image = image
        self._cards = cards_a_node
        self._node = ""

    def begin(self, node: str) -> None:
        """The node's label gives its cards to sharing: its Device lists them, and the Node has their totals."""
        self._node = node
        self._tools.kubectl("label", "node", node, f"{LABEL}=enabled")
        wait(f"Device {node} lists {self._cards} healthy cards", self._not_listed, SHARED_S)
        wait(f"node {node} has the totals of its cards", self._not_offered, SHARED_S)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}}
        self._tools.apply(namespace)
        wait("the namespace has its service account", self._without_account, PODS_S)

    def share_a_card(self) -> None:
        """Two pods with half a card run on one card: annotation, ledger and container agree on which."""
        for name in ("one", "two"):
            self._tools.apply(self._pod(name, WHOLE // 2))
            wait(f"pod {name} is Running", partial(self._not_running, name), PODS_S)
        cards = {name: self._card_of(name) for name in ("one", "two")}
        if len(set(cards.values())) != 1:
            raise StepError(f"the pods do not share a card: {cards}")
        for name, card in cards.items():
            wait(f"the container of pod {name} sees its card", partial(self._blind, name, card), PODS_S)
        wait("`get gpus` has both pods on the card", lambda: self._not_counted(cards["one"]), SHARED_S)

    def refuse_a_third(self) -> None:
        """A pod that asks for all cards waits: its condition and `why pod` say what is missing."""
        self._tools.apply(self._pod("all", WHOLE * self._cards))
        wait("pod all is Unschedulable", self._not_refused, PODS_S)
        wait("`why pod` says what is missing", self._unexplained, SHARED_S)

    def free_the_card(self) -> None:
        """The pods that share end: the one that waited gets all cards."""
        self._tools.kubectl("--namespace", TEAM, "delete", "pod", "one", "two", f"--timeout={GONE_S:.0f}s")
        wait("pod all is Running", lambda: self._not_running("all"), PODS_S)

    def end(self) -> None:
        """The namespace and the label go: the Device is gone, and the Node offers no shares."""
        tools = self._tools
        tools.kubectl("delete", "namespace", TEAM, f"--timeout={GONE_S:.0f}s", timeout_s=GONE_S + 10)
        tools.kubectl("label", "node", self._node, f"{LABEL}-")
        wait(f"Device {self._node} is gone", self._still_listed, SHARED_S)
        wait(f"node {self._node} offers no shares", self._still_offered, GONE_S)

    def _pod(self, name: str, percent: int) -> Object:
        command = ["python", "-c", HOLD if percent < WHOLE else "import time; time.sleep(3600)"]
        resources = {"requests": {f"{DOMAIN}/gpu": str(percent)}}
        container = {"name": "main", "image": self._image, "command": command, "resources": resources}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": TEAM},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]},
        }

    def _live(self, name: str) -> Object:
        return self._tools.one("pod", name, "--namespace", TEAM)

    def _card_of(self, name: str) -> str:
        """The UUID in a pod's annotation, which is the only one and half of its card."""
        pod = self._live(name)
        (gpu,) = json.loads(pod["metadata"]["annotations"][ALLOCATED])["gpu"]
        amounts = {short: gpu["resources"][short] for short in (CORE, RATIO)}
        if (amounts, pod["spec"]["nodeName"]) != (dict.fromkeys((CORE, RATIO), str(WHOLE // 2)), self._node):
            raise StepError(f"pod {name} has {gpu} on {pod['spec']['nodeName']}")
        return str(gpu["id"])

    def _not_running(self, name: str) -> str:
        status = self._live(name).get("status", {})
        if status.get("phase") == "Failed":
            raise StepError(f"pod {name} failed: {json.dumps(status)}")
        return "" if status.get("phase") == "Running" else f"its status is {json.dumps(status)}"

    def _not_refused(self) -> str:
        conditions = self._live("all").get("status", {}).get("conditions", [])
        found = [one for one in conditions if (one["type"], one["status"]) == ("PodScheduled", "False")]
        is_refused = any(one.get("reason") == "Unschedulable" and "gpu" in one.get("message", "") for one in found)
        return "" if is_refused else f"its conditions are {conditions}"

    def _unexplained(self) -> str:
        """What the ledger alone says: the account of the services may not read pods as people do."""
        why = self._ledger("why", "pod", f"{TEAM}/all", "--no-kube")
        return "" if f"too little {CORE.partition('/')[2]}" in why else f"it says {why!r}"

    def _blind(self, name: str, card: str) -> str:
        """What is wrong with what a container sees: one card, a half of its memory, and a half of its processors."""
        (listed,) = [one for one in self._listed() if one["id"] == card]
        half = _bytes(listed["resources"][MEMORY]) // 2
        text = self._tools.kubectl("--namespace", TEAM, "logs", name).split()
        return "" if text == [card, str(half), str(WHOLE // 2)] else f"it sees {text}, and has half of {listed}"

    def _not_counted(self, card: str) -> str:
        rows = [one for one in self._asked("get", "gpus", "--node", self._node) if one["id"] == card]
        pods = {f"{TEAM}/one", f"{TEAM}/two"}
        is_counted = len(rows) == 1 and rows[0]["core_used"] == WHOLE and pods == set(rows[0]["holders"].split(","))
        return "" if is_counted else f"it says {rows}"

    def _listed(self) -> list[Object]:
        found = self._tools.items(DEVICES)
        return [one for each in found if each["metadata"]["name"] == self._node for one in each["spec"]["devices"]]

    def _not_listed(self) -> str:
        found = self._listed()
        healthy = [one for one in found if one["type"] == "gpu" and one["health"]]
        return "" if len(healthy) == self._cards else f"it lists {found}"

    def _allocatable(self) -> dict[str, str]:
        found: dict[str, str] = self._tools.one("node", self._node)["status"]["allocatable"]
        return {name: amount for name, amount in found.items() if name.startswith(f"{DOMAIN}/") and amount != "0"}

    def _not_offered(self) -> str:
        found, memory = self._allocatable(), sum(_bytes(one["resources"][MEMORY]) for one in self._listed())
        is_total = {found.get(CORE), found.get(RATIO)} == {str(WHOLE * self._cards)}
        return "" if is_total and _bytes(found.get(MEMORY, "0")) == memory else f"it has {found}"

    def _still_listed(self) -> str:
        return f"it lists {found}" if (found := self._listed()) else ""

    def _still_offered(self) -> str:
        return f"it has {found}" if (found := self._allocatable()) else ""

    def _without_account(self) -> str:
        names = [one["metadata"]["name"] for one in self._tools.items("serviceaccounts", "--namespace", TEAM)]
        return "" if "default" in names else f"there are {names}"

    def _asked(self, *command: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self._ledger(*command, "--output", "json"))
        return found

    def _ledger(self, *command: str) -> str:
        return self._tools.here("exec", "deployment/gpuledger", "--", "gpuledger", *command)


UNITS: Final = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}


def _bytes(quantity: str) -> int:
    """The bytes of a quantity of memory as gpuledger and Kubernetes write whole ones."""
    unit = quantity[-2:]
    return int(quantity[:-2]) * UNITS[unit] if unit in UNITS else int(quantity)
