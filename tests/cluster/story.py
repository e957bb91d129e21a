"""The steps: what an administrator does with a cluster and gpuledger, and what must be true after each.

Nothing here may look behind the Kubernetes API, because the same steps run on every cluster.
"""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from cluster.incident import Incident, values
from cluster.inventory import inventory
from cluster.machineconfig import CONFIGS, POOLS, RENDERED, MachineConfigs, PodLook, machine_config_values
from cluster.preflight import Preflight, expect_unchecked, preflight_values
from cluster.sharing import DEVICES, Sharing, sharing_values
from cluster.tools import Object, StepError, Tools, wait
from cluster.volumes import LocalVolumes

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "charts" / "gpuledger"
RELEASE: Final = "gpuledger"
TEAM: Final = "gpuledger-check"
POOL: Final = "check"
PERSON: Final = "gpuledger-check"
ROLE: Final = "d8:user-authz:gpu-control-plane:editor"
POLICY: Final = "gpu-control-plane-restricted-access"
RESOURCE: Final = f"cluster.gpu.deckhouse.io/{POOL}"
DETECTED: Final = "gpu.deckhouse.io/detected"
"""The label that gpuledger sets on nodes with GPUs."""

HELM_S: Final = 360.0
ROLLOUT_S: Final = 300.0
DEVICES_S: Final = 180.0
RECOVERY_S: Final = 180.0
POLLS_S: Final = 15.0
PODS_S: Final = 120.0
GONE_S: Final = 180.0

COMPONENTS: Final = ("validator", "gfd", "dcgm", "dcgmExporter")
"""None of them looks at GPUs that are simulated."""

PROBE: Final = ["gpuledger", "agent", "probe", "--hardware", "simulated:1xH100"]
HOLD: Final = "import os, time; print(os.environ['NVIDIA_VISIBLE_DEVICES'], flush=True); time.sleep(3600)"


class Story:
    """What happens, in order; a step's first line says what it is about."""

    def __init__(self, tools: Tools, image: str, hardware: str, values: Sequence[str]) -> None:
        self._tools = tools
        self._image = image
        self._hardware = hardware
        self._values = values
        self._cards_a_node = sum(int(part.partition("x")[0]) for part in hardware.split(","))
        self._nodes: list[str] = []
        self._before: set[str] = set()
        self._broken: Object = {}
        self._volumes: LocalVolumes | None = None
        self._incident = Incident(tools, image)
        self._preflight = Preflight(tools, image, RESOURCE)
        self._sharing = Sharing(tools, image, self._cards_a_node)
        self._configs = MachineConfigs(tools, PodLook(tools, image), lambda: self._nodes[0])

    def steps(self) -> tuple[Callable[[], None], ...]:
        """All steps, in order."""
        return (
            self.look_at_the_cluster,
            self.install,
            self.wait_until_all_run,
            self.wait_for_devices,
            self.share_cards,
            self.share_a_card,
            self.refuse_a_share,
            self.free_a_share,
            self.take_the_cards_back,
            self.make_a_pool,
            self.turn_checks_on,
            self.go_through_checks,
            self.fail_a_check,
            self.check_a_gang,
            self.run_pods,
            self.break_a_card,
            self.recover_the_card,
            self.set_a_node_aside,
            self.remedy_the_node,
            self.give_the_node_back,
            self.turn_checks_off,
            *self._configs.steps(),
            self.upgrade,
            self.uninstall,
            self.remove_what_remains,
            self.find_nothing_left,
        )

    def look_at_the_cluster(self) -> None:
        """The cluster is empty, and has nodes that nobody has prepared."""
        self._before = inventory(self._tools)
        taken = [one for one in self._before if one.endswith((f"/{self._tools.namespace}", ".gpu.deckhouse.io"))]
        if taken:
            raise StepError(f"the cluster has {', '.join(sorted(taken))}: it is not empty")
        self._nodes = [one["metadata"]["name"] for one in self._tools.items("nodes") if _is_ready(one)]
        if not self._nodes:
            raise StepError("the cluster has no node that is Ready")

    def install(self) -> None:
        """helm installs the chart."""
        tools = self._tools
        tools.kubectl("create", "namespace", tools.namespace)
        repository, _, tag = self._image.rpartition(":")
        chosen = [f"image.repository={repository}", f"image.tag={tag}"]
        chosen += [f"settings.bootstrap.{component}.enabled=false" for component in COMPONENTS]
        further = sharing_values() | machine_config_values()
        chosen += [f"{name}={value}" for name, value in further.items()]
        chosen += [f"agent.hardware=simulated:{self._hardware.replace(',', chr(92) + ',')}"]
        if not any(map(_is_default, tools.items("storageclasses"))):
            print("The cluster has no default StorageClass: the servers get folders of a node.")
            self._volumes = LocalVolumes(tools, next(filter(_is_ready, tools.items("nodes"))), self._image)
            self._volumes.make()
            chosen += self._volumes.values()
        options = [word for value in (*chosen, *self._values) for word in ("--set", value)]
        for name, value in values(tools.namespace, self._image).items():
            options += ["--set-json", f"{name}={json.dumps(value)}"]
        tools.helm("install", RELEASE, str(CHART), "--timeout", "5m", *options, timeout_s=HELM_S)

    def wait_until_all_run(self) -> None:
        """The Deployment and the agents of all nodes are Ready."""
        self._rolled_out()

    def _rolled_out(self) -> None:
        for what in ("deployment/gpuledger", "daemonset/gpu-node-agent", "daemonset/machine-config-agent"):
            self._tools.here("rollout", "status", what, f"--timeout={ROLLOUT_S:.0f}s", timeout_s=ROLLOUT_S + 10)

    def wait_for_devices(self) -> None:
        """Every card is a GPUDevice, and Ready; nobody had to label the nodes."""
        self._devices_become("Ready", len(self._nodes) * self._cards_a_node)
        wait("gpuledger has labelled the nodes with GPUs", self._unlabelled, PODS_S)

    def share_cards(self) -> None:
        """A label gives a node's cards to sharing: its Device lists them, and the Node has their totals."""
        self._sharing.begin(self._nodes[0])

    def share_a_card(self) -> None:
        """Two pods with half a card run on one card: annotation, ledger and container agree on which."""
        self._sharing.share_a_card()

    def refuse_a_share(self) -> None:
        """A pod for which there is no room waits, and `why pod` says what is missing."""
        self._sharing.refuse_a_third()

    def free_a_share(self) -> None:
        """The pods that share a card end, and the one that waited runs."""
        self._sharing.free_the_card()

    def take_the_cards_back(self) -> None:
        """The label goes, and with it the Device and the Node's totals: the cards are free for pools."""
        self._sharing.end()
        self._devices_become("Ready", len(self._nodes) * self._cards_a_node)

    def make_a_pool(self) -> None:
        """An editor gives a pool all devices, and may change nothing else of them; the kubelets offer them."""
        tools = self._tools
        tools.apply(
            {
                "apiVersion": "gpu.deckhouse.io/v1alpha1",
                "kind": "ClusterGPUPool",
                "metadata": {"name": POOL},
                "spec": {"resource": {"unit": "Card"}},
            }
        )
        tools.kubectl("create", "clusterrolebinding", PERSON, f"--clusterrole={ROLE}", f"--user={PERSON}")
        self._refuse_a_person(f"{PERSON}=1")
        self._annotate_as_a_person(f"cluster.gpu.deckhouse.io/assignment={POOL}")
        tools.kubectl("delete", "clusterrolebinding", PERSON)
        self._devices_become("Assigned", len(self._nodes) * self._cards_a_node)
        self._allocatable_become(dict.fromkeys(self._nodes, self._cards_a_node))

    def _annotate_as_a_person(self, annotation: str) -> None:
        self._tools.kubectl("annotate", "gpudevice", "--all", annotation, "--as", PERSON)

    def _refuse_a_person(self, annotation: str) -> None:
        try:
            self._annotate_as_a_person(annotation)
        except StepError as error:
            if POLICY not in str(error):
                raise
        else:
            raise StepError(f"{PERSON} set {annotation} on all GPUDevices: the policy {POLICY} is not in force")

    def turn_checks_on(self) -> None:
        """helm upgrades the release: pods of a team's namespace that use GPUs go through preflight checks."""
        self._upgrade("--set-json", f"preflight={json.dumps(preflight_values(self._image, RESOURCE))}")
        self._preflight.begin()

    def go_through_checks(self) -> None:
        """A pod goes through its checks before it starts, and the ledger has what came of each."""
        self._preflight.pass_checks()

    def fail_a_check(self) -> None:
        """A check of a pod fails: the pod does not start, and its Event, the ledger and the report say why."""
        self._preflight.fail_a_check()

    def check_a_gang(self) -> None:
        """Two pods of a gang find each other by a ConfigMap, go on, and leave no ConfigMap."""
        self._preflight.meet()

    def turn_checks_off(self) -> None:
        """helm upgrades the release without preflight checks: pods of the team get none any more."""
        self._upgrade("--set", "preflight.enabled=false")
        self._preflight.end()

    def run_pods(self) -> None:
        """A pod with a GPU ends, and another one keeps its GPU; in this namespace nobody checks anything."""
        tools = self._tools
        tools.apply(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": TEAM, "labels": {"gpu.deckhouse.io/enabled": "true"}},
            }
        )
        wait("the namespace has its service account", self._without_account, PODS_S)
        tools.apply(self._pod("ends", PROBE), self._pod("holds", ["python", "-c", HOLD]))
        self._pod_becomes("ends", "Succeeded")
        self._pod_becomes("holds", "Running")
        for name in ("ends", "holds"):
            expect_unchecked(tools.one("pod", name, "--namespace", TEAM))
        wait("the pod's log names its GPU", lambda: "" if self._held() else "the log is empty", PODS_S)
        if "H100" not in (text := tools.kubectl("--namespace", TEAM, "logs", "ends")):
            raise StepError(f"the log of the pod that ended is {text!r}")

    def break_a_card(self) -> None:
        """A free card falls off the bus: its GPUDevice is Faulted, and the kubelet offers one less."""
        held = self._held()
        node = self._tools.one("pod", "holds", "--namespace", TEAM)["spec"]["nodeName"]
        free = [one for one in self._devices() if one["status"]["nodeName"] == node and _uuid(one) not in held]
        if not free:
            raise StepError(f"node {node} has no card that is free; --hardware needs at least two")
        self._broken = free[0]
        self._inject(f"xid:79@{_uuid(self._broken)}")
        self._devices_become("Faulted", 1)
        self._allocatable_become({one: self._cards_a_node - (one == node) for one in self._nodes})
        self._pod_becomes("holds", "Running")
        # A card that comes back between two polls of its agent counts as faulted for five minutes; docs/node-agent.md.
        time.sleep(POLLS_S)

    def recover_the_card(self) -> None:
        """The card comes back: its GPUDevice is Assigned again, and the kubelet offers all."""
        self._inject("recover")
        self._devices_become("Assigned", len(self._nodes) * self._cards_a_node)
        self._allocatable_become(dict.fromkeys(self._nodes, self._cards_a_node))

    def set_a_node_aside(self) -> None:
        """A health monitor reports a fatal fault over its node's socket, and the release's rules cordon the Node."""
        self._incident.begin(self._nodes[0])

    def remedy_the_node(self) -> None:
        """The node gets its remedy, a Job, and the ledger has what came of it."""
        self._incident.remedied()

    def give_the_node_back(self) -> None:
        """The monitor reports the node healthy: the Node is as it was, and the incident has ended."""
        self._incident.end()

    def upgrade(self) -> None:
        """helm upgrades the release, with checks: all pods are new; devices, workloads and rules are as before."""
        before = self._tools.one("pod", "holds", "--namespace", TEAM)["metadata"]["uid"]
        self._upgrade("--set-string", "podAnnotations.gpuledger-check=upgraded", "--set", "preflight.enabled=true")
        after = self._tools.one("pod", "holds", "--namespace", TEAM)
        if (after["metadata"]["uid"], after["status"]["phase"]) != (before, "Running"):
            raise StepError(f"the pod that holds a GPU is {after['status']['phase']} after the upgrade")
        self._incident.rules_are_as_before()
        self._preflight.leave_one_waiting()

    def _upgrade(self, *options: str) -> None:
        command = ("upgrade", RELEASE, str(CHART), "--reset-then-reuse-values", "--timeout", "5m", *options)
        self._tools.helm(*command, timeout_s=HELM_S)
        self._rolled_out()
        self._devices_become("Assigned", len(self._nodes) * self._cards_a_node)
        self._allocatable_become(dict.fromkeys(self._nodes, self._cards_a_node))

    def uninstall(self) -> None:
        """helm uninstalls the release while a pool has devices and a pod its checks, and the pool can be deleted."""
        tools = self._tools
        tools.kubectl("delete", "namespace", TEAM, f"--timeout={GONE_S:.0f}s", timeout_s=GONE_S + 10)
        tools.helm("uninstall", RELEASE, "--timeout", "5m", timeout_s=HELM_S)
        print(tools.here("logs", "job/gpuledger-uninstall"))
        self._preflight.remove()
        self._configs.expect_no_annotations()
        tools.kubectl("delete", "clustergpupool", POOL, f"--timeout={GONE_S:.0f}s", timeout_s=GONE_S + 10)

    def remove_what_remains(self) -> None:
        """What docs/installing.md names as remaining is removed."""
        tools, absent = self._tools, "--ignore-not-found"
        tools.kubectl(
            *("delete", "customresourcedefinition", "gpudevices.gpu.deckhouse.io", "gpunodestates.gpu.deckhouse.io"),
            *("resourceslicestatuses.resource.gpuledger.io", "gpupools.gpu.deckhouse.io"),
            *("clustergpupools.gpu.deckhouse.io", DEVICES, CONFIGS, POOLS, RENDERED),
        )
        tools.kubectl("--namespace", "kube-system", "delete", "configmap", absent, "gpuledger-ledger")
        tools.kubectl("delete", "namespace", tools.namespace, f"--timeout={GONE_S:.0f}s", timeout_s=GONE_S + 10)
        if self._volumes is not None:
            self._volumes.remove()

    def find_nothing_left(self) -> None:
        """The cluster has what it had before, and nothing else, and its nodes have no label of gpuledger's."""

        def difference() -> str:
            left = inventory(self._tools) - self._before
            return f"left are {', '.join(sorted(left))}" if left else ""

        wait("nothing is left", difference, GONE_S)
        if labelled := self._labelled():
            raise StepError(f"the label {DETECTED} is left on {', '.join(sorted(labelled))}")

    def _pod(self, name: str, command: list[str]) -> Object:
        container = {
            "name": "main",
            "image": self._image,
            "command": command,
            "resources": {"limits": {RESOURCE: "1"}},
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": TEAM},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]},
        }

    def _labelled(self) -> set[str]:
        return {one["metadata"]["name"] for one in self._tools.items("nodes", f"--selector={DETECTED}=true")}

    def _unlabelled(self) -> str:
        missing = set(self._nodes) - self._labelled()
        return f"{', '.join(sorted(missing))} have no label {DETECTED}" if missing else ""

    def _held(self) -> str:
        return self._tools.kubectl("--namespace", TEAM, "logs", "holds").strip()

    def _devices(self) -> list[Object]:
        return self._tools.items("gpudevices")

    def _inject(self, fault: str) -> None:
        node = self._broken["status"]["nodeName"]
        chosen = ("--selector=app=gpu-node-agent", f"--field-selector=spec.nodeName={node},status.phase=Running")
        (agent, *_) = json.loads(self._tools.here("get", "pods", *chosen, "--output=json"))["items"]
        self._tools.here("exec", agent["metadata"]["name"], "--", "gpuledger", "agent", "inject", fault)

    def _devices_become(self, state: str, count: int) -> None:
        def missing() -> str:
            states = {one["metadata"]["name"]: one.get("status", {}).get("state") for one in self._devices()}
            return "" if list(states.values()).count(state) == count else f"the devices are {states}"

        wait(f"{count} GPUDevices {state}", missing, max(DEVICES_S, RECOVERY_S))

    def _allocatable_become(self, expected: dict[str, int]) -> None:
        def missing() -> str:
            nodes = {one["metadata"]["name"]: one for one in self._tools.items("nodes")}
            found = {name: int(nodes[name]["status"]["allocatable"].get(RESOURCE, 0)) for name in expected}
            return "" if found == expected else f"the nodes offer {found}"

        wait(f"allocatable {RESOURCE} {expected}", missing, DEVICES_S)

    def _pod_becomes(self, name: str, phase: str) -> None:
        def missing() -> str:
            status = self._tools.one("pod", name, "--namespace", TEAM).get("status", {})
            return "" if status.get("phase") == phase else f"its status is {json.dumps(status)}"

        wait(f"pod {name} {phase}", missing, PODS_S)

    def _without_account(self) -> str:
        accounts = self._tools.items("serviceaccounts", "--namespace", TEAM)
        names = [one["metadata"]["name"] for one in accounts]
        return "" if "default" in names else f"there are {names}"


def _is_ready(node: Object) -> bool:
    found = node.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in found)


def _is_default(storage_class: Object) -> bool:
    annotations = storage_class["metadata"].get("annotations", {})
    return bool(annotations.get("storageclass.kubernetes.io/is-default-class") == "true")


def _uuid(device: Object) -> str:
    return str(device["status"]["hardware"]["uuid"])
