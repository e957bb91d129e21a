"""Preflight checks of pods in a namespace of a team: those that pass, one that fails, and a gang that waits for itself.

There are no real GPUs, so gpuledger's own checks have nothing to test, and say so. The others are somebody else's for
the service: a program in gpuledger's image that keeps the contract of docs/preflight.md, on the cards of a pool.
"""

import json
from typing import Any, Final

from cluster.tools import Object, StepError, Tools, wait

TEAM: Final = "gpuledger-check-training"
WEBHOOK: Final = "gpuledger-preflight"
LABEL: Final = "gpuledger.io/preflight"
NARROWED: Final = "gpuledger.io/preflight-checks"
INJECTED: Final = "gpuledger.io/preflight-injected"
GANG_ID: Final = "gpuledger.io/preflight-gang"
"""The annotation that says which gang a pod belongs to; what its ConfigMap is called follows from it."""

GANG_LABEL: Final = "gpuledger-check/gang"
SIZE_LABEL: Final = "gpuledger-check/gang-size"

OWN: Final = {"dcgm-diag": "not-reported", "bandwidth": "skipped"}
"""Checks of gpuledger's, and what they come to where there is no GPU."""

PASSES: Final = "passes"
FAILS: Final = "fails"
MEETS: Final = "meets"
CODE: Final = "CLUSTER_CHECK"
GANG: Final = "pair"
PEERS: Final = ("pair-0", "pair-1")
WAITING: Final = "waits"
"""The pod, and the gang, of which no second pod comes."""

FAILED_EVENT: Final = "PreflightCheckFailed"

WEBHOOK_S: Final = 120.0
CHECKS_S: Final = 180.0
GANG_S: Final = 300.0
"""The kubelet brings a change of a ConfigMap to a pod within about a minute."""

LEDGER_S: Final = 60.0
GONE_S: Final = 180.0

CHECK: Final = """
import json, os, pathlib, socket, sys, time
import grpc
from google.protobuf.empty_pb2 import Empty
from gpuledger.healthreports.healthevents_pb2 import Entity, HealthEvent, HealthEvents

name, gang = sys.argv[1], pathlib.Path("/etc/preflight")
began, waited, fails = time.monotonic(), 0.0, name == "fails"


def meet():
    "Each pod of the gang reaches each other one, so that none goes on before all have read who they are."
    read = lambda key: (gang / key).read_text() if (gang / key).exists() else ""
    while not read("expected_count") or len(read("peers").splitlines()) < int(read("expected_count")):
        time.sleep(1)
    port = int(read("master_port"))
    others = [line.split(":", 1)[1] for line in read("peers").splitlines()]
    others.remove(os.environ["MY_POD_IP"])
    with socket.create_server(("", port)) as server:
        for address in others:
            reach(address, port)
        for _ in others:
            server.accept()[0].close()


def reach(address, port):
    while True:
        try:
            return socket.create_connection((address, port), 5).close()
        except OSError:
            time.sleep(1)


if name == "meets":
    meet()
    waited = time.monotonic() - began
cards = [one for one in os.environ["NVIDIA_VISIBLE_DEVICES"].split(",") if one.startswith("GPU-")]
event = HealthEvent(agent="gpuledger-preflight", checkName="preflight-" + name, componentClass="GPU")
event.isHealthy, event.message = not fails, name + " on " + ", ".join(cards)
event.errorCode.extend(["CLUSTER_CHECK"] if fails else [])
event.entitiesImpacted.extend(Entity(entityType="GPU_UUID", entityValue=card) for card in cards)
names = {"pod_namespace": "MY_POD_NAMESPACE", "pod_name": "MY_POD_NAME", "pod_uid": "MY_POD_UID"}
event.metadata.update({key: os.environ[variable] for key, variable in names.items()})
event.metadata["outcome"] = outcome = "failed" if fails else "passed"
event.generatedTimestamp.GetCurrentTime()
while True:
    try:
        with grpc.insecure_channel(os.environ["PLATFORM_CONNECTOR_SOCKET"]) as channel:
            report = channel.unary_unary(
                "/datamodels.PlatformConnector/HealthEventOccurredV1",
                request_serializer=HealthEvents.SerializeToString,
                response_deserializer=Empty.FromString,
            )
            report(HealthEvents(version=1, events=[event]), wait_for_ready=True, timeout=20)
        break
    except grpc.RpcError as error:
        print(error.code(), error.details(), flush=True)
        if error.code() != grpc.StatusCode.UNAVAILABLE or time.monotonic() - began > waited + 60:
            sys.exit(4)
        time.sleep(0.5)
result = {"outcome": outcome, "message": event.message, "codes": list(event.errorCode)}
result |= {"duration_s": round(time.monotonic() - began, 3), "gang_wait_s": round(waited, 3)}
pathlib.Path("/dev/termination-log").write_text(json.dumps(result))
sys.exit(1 if fails else 0)
"""


def preflight_values(image: str, resource: str) -> dict[str, Any]:
    """The values by which pods of the team get checks where they request units of a pool."""
    others = [{"name": name, "image": image, "command": ["python", "-c", CHECK, name]} for name in (PASSES, FAILS)]
    meets = {"name": MEETS, "image": image, "command": ["python", "-c", CHECK, MEETS], "gang": True}
    return {
        "enabled": True,
        "namespaces": [TEAM],
        "checks": [*({"name": name} for name in OWN), *others, meets],
        "gpuDetection": {"resourceNames": [resource]},
        "gangDiscovery": {
            "method": "labels",
            "labels": {"gangIdLabel": GANG_LABEL, "gangSizeLabel": SIZE_LABEL},
        },
    }


class Preflight:
    """Pods of the team that go through checks; a step's first line says what it is about."""

    def __init__(self, tools: Tools, image: str, resource: str) -> None:
        self._tools = tools
        self._image = image
        self._resource = resource
        self._node = ""

    def begin(self) -> None:
        """Pods of the team get checks from now on."""
        self._is_on()
        labels = {"gpu.deckhouse.io/enabled": "true"}
        self._tools.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM, "labels": labels}})
        wait("the namespace has its service account", self._without_account, CHECKS_S)

    def pass_checks(self) -> None:
        """A pod goes through its checks before its own containers, on the card that these get."""
        names = [*OWN, PASSES]
        first = {"name": "first", "image": self._image, "command": ["python", "-c", "print('first')"]}
        made = self._create("passes", names, init=[first])
        containers = [one["name"] for one in made["spec"]["initContainers"]]
        if containers != [*(f"preflight-{name}" for name in names), "first"]:
            raise StepError(f"the init containers of pod passes are {containers}")
        requested = [one["resources"].get("limits", {}).get(self._resource) for one in made["spec"]["initContainers"]]
        if requested != ["1"] * len(names) + [None]:
            raise StepError(f"the init containers of pod passes request {requested} of {self._resource}")
        self._becomes("passes", "Succeeded", CHECKS_S)
        self._lists("passes", {**OWN, PASSES: "passed"})
        (message,) = (one["message"] for one in self._listed("passes") if one["check_name"] == PASSES)
        if (card := self._log("passes", "main")) not in message:
            raise StepError(f"the pod had {card}, and its check {message!r}")
        self._node = self._pod("passes")["spec"]["nodeName"]

    def fail_a_check(self) -> None:
        """A check fails: its pod does not start, and an Event, `preflight show` and the report say why."""
        self._create("fails", [FAILS])
        self._becomes("fails", "Failed", CHECKS_S)
        self._lists("fails", {FAILS: "failed"})
        wait("the pod has an Event of its failed check", self._without_event, LEDGER_S)
        wait("`preflight show` has the incident", self._unshown, LEDGER_S)
        (event,) = self._ledger("log", "tail", "--type", "node.health-reported", "--lines", "1")
        if f"preflight-{FAILS}" not in (text := json.dumps(event)):
            raise StepError(f"the last report about a node in the ledger is {text}")
        if self._tools.one("node", self._node)["spec"].get("unschedulable"):
            raise StepError(f"node {self._node} is cordoned for a failure that is not fatal")
        rows = [one for one in self._ledger("report", "preflight") if one["per"] == "check"]
        passed = {one["check_name"]: (int(one["passed"]), int(one["failed"])) for one in rows}
        if (passed.get(PASSES), passed.get(FAILS)) != ((1, 0), (0, 1)):
            raise StepError(f"`report preflight` has {rows}")

    def meet(self) -> None:
        """The pods of a gang have a ConfigMap with all of them, and go on together."""
        # Their own annotations take the pods out of all other checks.
        made = [self._create(name, [], labels=_labels_of(GANG)) for name in PEERS]
        ids = {one["metadata"]["annotations"].get(GANG_ID) for one in made}
        if len(ids) != 1 or None in ids:
            raise StepError(f"the pods of one gang are of {ids}")
        (gang,) = ids
        wait(f"the ConfigMap of gang {gang} has both pods", lambda: self._unmet(gang), CHECKS_S)
        for name in PEERS:
            self._becomes(name, "Succeeded", GANG_S)
            self._lists(name, {MEETS: "passed"})
        events = self._ledger("log", "tail", "--type", "gang.configured", "--lines", "10")
        if f"{TEAM}/{gang}" not in json.dumps(events):
            raise StepError(f"the ledger has no gang.configured of {TEAM}/{gang}: {events}")
        self._tools.kubectl("--namespace", TEAM, "delete", "pod", *PEERS)
        wait(f"the ConfigMap of gang {gang} is gone", lambda: "; ".join(self._config_maps()), LEDGER_S)

    def end(self) -> None:
        """Pods of the team get no checks any more, because the webhook is gone."""
        wait("the API server has no webhook of preflight checks", self._with_webhook, WEBHOOK_S)
        self._create("unchecked", None)
        self._becomes("unchecked", "Succeeded", CHECKS_S)
        expect_unchecked(self._pod("unchecked"))

    def leave_one_waiting(self) -> None:
        """Pods of the team get checks again, and one waits for its gang."""
        self._is_on()
        made = self._create(WAITING, [], labels=_labels_of(WAITING))
        expected = [f"preflight-{made['metadata']['annotations'][GANG_ID]}"]
        wait(
            f"there is the ConfigMap {expected[0]}",
            lambda: "" if list(found := self._config_maps()) == expected else f"there are {list(found)}",
            CHECKS_S,
        )

    def remove(self) -> None:
        """The release is gone, and nothing is left of its checks but the team's namespace, which is removed."""
        wait("the API server has no webhook of preflight checks", self._with_webhook, WEBHOOK_S)
        wait("no ConfigMap of a gang is left", lambda: ", ".join(self._config_maps()), GONE_S)
        self._tools.kubectl("delete", "namespace", TEAM, f"--timeout={GONE_S:.0f}s", timeout_s=GONE_S + 10)

    def _create(
        self,
        name: str,
        checks: list[str] | None,
        *,
        labels: dict[str, str] | None = None,
        init: list[Object] | None = None,
    ) -> Object:
        """A pod that prints its card, as the API server has it; `checks` narrows those that it gets."""
        container = {
            "name": "main",
            "image": self._image,
            "command": ["python", "-c", "import os; print(os.environ['NVIDIA_VISIBLE_DEVICES'])"],
            "resources": {"limits": {self._resource: "1"}},
        }
        metadata: Object = {"name": name, "namespace": TEAM, "labels": labels or {}}
        if checks is not None:
            metadata["annotations"] = {NARROWED: ",".join(checks)}
        spec = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "initContainers": init or [],
            "containers": [container],
        }
        self._tools.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        return self._pod(name)

    def _pod(self, name: str) -> Object:
        return self._tools.one("pod", name, "--namespace", TEAM)

    def _log(self, pod: str, container: str) -> str:
        return self._tools.kubectl("--namespace", TEAM, "logs", pod, f"--container={container}").strip()

    def _lists(self, pod: str, expected: dict[str, str]) -> None:
        """`preflight list` comes to have these outcomes of a pod's checks."""

        def missing() -> str:
            found = self._listed(pod)
            return "" if {one["check_name"]: one["outcome"] for one in found} == expected else f"it has {found}"

        wait(f"`preflight list` has the checks of pod {pod}", missing, LEDGER_S)

    def _listed(self, pod: str) -> list[Object]:
        found = self._ledger("preflight", "list", "--namespace", TEAM, "--all")
        return [one for one in found if one["pod"] == f"{TEAM}/{pod}"]

    def _becomes(self, name: str, phase: str, timeout_s: float) -> None:
        def missing() -> str:
            status = self._pod(name).get("status", {})
            return "" if status.get("phase") == phase else f"its status is {json.dumps(status)}"

        wait(f"pod {name} {phase}", missing, timeout_s)

    def _without_event(self) -> str:
        found = self._tools.items("events.events.k8s.io", "--namespace", TEAM)
        ours = [one for one in found if one.get("reason") == FAILED_EVENT]
        is_one = [one["regarding"]["name"] for one in ours] == ["fails"] and FAILS in ours[0]["note"]
        return "" if is_one else f"there are {ours}"

    def _unshown(self) -> str:
        found: Object = self._document("preflight", "show", f"{TEAM}/fails")
        incidents = [one["check_name"] for one in found["incidents"]]
        codes = [one["codes"] for one in found["checks"]]
        return "" if (incidents, codes) == ([f"preflight-{FAILS}"], [CODE]) else f"it says {json.dumps(found)}"

    def _unmet(self, gang: str) -> str:
        found = self._config_maps()
        if list(found) != [f"preflight-{gang}"]:
            return f"there are {list(found)}"
        data = found[f"preflight-{gang}"]["data"]
        addresses = {name: self._pod(name).get("status", {}).get("podIP") for name in PEERS}
        peers = "".join(f"{name}:{address}\n" for name, address in addresses.items())
        is_whole = (data.get("expected_count"), data.get("peers"), data.get("gang_id")) == (
            str(len(PEERS)),
            peers,
            gang,
        )
        return "" if is_whole else f"it has {data}, and the pods {addresses}"

    def _config_maps(self) -> dict[str, Object]:
        """The ConfigMaps of gangs by their names."""
        found = self._tools.items(
            "configmaps", "--namespace", TEAM, "--selector=app.kubernetes.io/managed-by=gpuledger"
        )
        return {one["metadata"]["name"]: one for one in found}

    def _is_on(self) -> None:
        wait("the API server has the webhook of preflight checks", self._without_webhook, WEBHOOK_S)

    def _without_webhook(self) -> str:
        found = [one for one in self._tools.items("mutatingwebhookconfigurations") if _name(one) == WEBHOOK]
        hooks = [hook for one in found for hook in one.get("webhooks") or []]
        return "" if hooks else f"there are {found}"

    def _with_webhook(self) -> str:
        found = [_name(one) for one in self._tools.items("mutatingwebhookconfigurations")]
        return f"there are {found}" if WEBHOOK in found else ""

    def _without_account(self) -> str:
        names = [_name(one) for one in self._tools.items("serviceaccounts", "--namespace", TEAM)]
        return "" if "default" in names else f"there are {names}"

    def _ledger(self, *command: str) -> list[Object]:
        found: list[Object] = self._document(*command)
        return found

    def _document(self, *command: str) -> Any:
        ran = ("exec", "deployment/gpuledger", "--", "gpuledger", *command, "--output", "json")
        return json.loads(self._tools.here(*ran))


def _labels_of(gang: str) -> dict[str, str]:
    return {GANG_LABEL: gang, SIZE_LABEL: str(len(PEERS))}


def expect_unchecked(pod: Object) -> None:
    """Fail where a pod has anything of preflight checks."""
    metadata, spec = pod["metadata"], pod["spec"]
    marks = [*(metadata.get("labels") or {}), *(metadata.get("annotations") or {})]
    containers = [one["name"] for one in spec.get("initContainers") or []]
    if LABEL in marks or INJECTED in marks or containers:
        raise StepError(f"pod {_name(pod)} has the init containers {containers} and the marks {marks}")


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])
