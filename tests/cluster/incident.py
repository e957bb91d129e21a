"""A fault of a node, from a health monitor's report over the node's socket to the node that is given back.

The release has the rules: what they ask for is looked for in the API server, and what the ledger says of it is asked in
a pod of the services, as an administrator does.
"""

import json
from typing import Any, Final

from cluster.tools import Object, StepError, Tools, wait

MONITOR: Final = "gpuledger-check"
CHECK: Final = "ClusterCheck"
RULESET: Final = "cluster check"
REMEDY: Final = "check"
TAINT: Final = {"key": "gpuledger-check", "value": "faulty", "effect": "NoSchedule"}
LABEL: Final = "gpuledger-check/faulty"
ISOLATION: Final = "gpuledger.io/isolation"
"""The annotation that says what of a Node is ours to undo."""

HOPS: Final = {"reported", "assessed", "requested", "decided", "cordoned"}
"""The events on the way from a report to its outcome, as `why node` calls them."""

SOCKETS: Final = "/var/run/gpuledger"
ANYWHERE: Final = [{"operator": "Exists"}]

RULES_S: Final = 120.0
REPORT_S: Final = 120.0
NODE_S: Final = 120.0
REMEDY_S: Final = 180.0

REPORT: Final = """
import grpc
from google.protobuf.empty_pb2 import Empty
from gpuledger.healthreports.healthevents_pb2 import RESTART_BM, HealthEvent, HealthEvents

event = HealthEvent(agent={monitor!r}, checkName={check!r}, isFatal={fatal}, isHealthy={healthy})
event.message, event.recommendedAction = {message!r}, RESTART_BM if {fatal} else 0
event.generatedTimestamp.GetCurrentTime()
with grpc.insecure_channel("unix://{sockets}/health.sock") as channel:
    report = channel.unary_unary(
        "/datamodels.PlatformConnector/HealthEventOccurredV1",
        request_serializer=HealthEvents.SerializeToString,
        response_deserializer=Empty.FromString,
    )
    report(HealthEvents(version=1, events=[event]), wait_for_ready=True, timeout=60)
print("reported")
"""


def values(namespace: str, image: str) -> dict[str, Any]:
    """The values by which a release sets nodes aside for reports of this monitor, and has a Job as their remedy."""
    match = {"all": [{"kind": "HealthEvent", "expression": f"event.isFatal && event.agent == '{MONITOR}'"}]}
    ruleset = {
        "name": RULESET,
        "match": match,
        "cordon": {"shouldCordon": True},
        "taint": TAINT,
        "labels": {LABEL: "true"},
    }
    pod = {
        "restartPolicy": "Never",
        "nodeName": "${node}",
        "tolerations": ANYWHERE,
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": image, "command": ["python", "-c", "print('${node} is repaired')"]}],
    }
    remedy = {
        "name": REMEDY,
        "actions": ["RESTART_BM"],
        "resource": "jobs",
        "template": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"namespace": namespace},
            "spec": {"backoffLimit": 2, "template": {"spec": pod}},
        },
        "outcome": {"succeeded": {"condition": "Complete"}, "failed": {"condition": "Failed"}},
        "timeout": "5m",
    }
    # Half of the nodes of a cluster of one are none.
    breaker = {"percentage": 100}
    return {
        "quarantine.rules": {"kind": "QuarantineRules", "circuitBreaker": breaker, "ruleSets": [ruleset]},
        "remediation.rules": {"kind": "RemediationRules", "remedies": [remedy]},
        "remediation.objects": [{"apiGroup": "batch", "resources": ["jobs"]}],
    }


class Incident:
    """A node that a monitor's pod reports about; a step's first line says what it is about."""

    def __init__(self, tools: Tools, image: str) -> None:
        self._tools = tools
        self._image = image
        self._node = ""
        self._before: Object = {}
        self._in_force: list[Object] = []

    def begin(self, node: str) -> None:
        """A monitor reports a fatal fault of the node, which the rules of the release set aside."""
        wait("the rules of the release are in force", self._rules_missing, RULES_S)
        self._node, self._in_force = node, self._rules()
        self._before = _kept(self._tools.one("node", node))
        self._report("fails", message="The check of the cluster failed", fatal=True)
        wait(f"node {node} is set aside", self._not_set_aside, NODE_S)
        (incident,) = self._incidents()
        if (incident["fatal"], incident["monitor"]) != (True, MONITOR):
            raise StepError(f"the incident is {incident}")
        wait("`why node` leads from the report to the cordon", self._unexplained, NODE_S)

    def remedied(self) -> None:
        """The node has its remedy, a Job on it, whose outcome is in the ledger."""
        wait(f"the remedy of node {self._node} succeeded", self._not_remedied, REMEDY_S)
        (found,) = self._remediations()
        job = self._tools.one("job", found["object"].partition("/")[2], "--namespace", self._tools.namespace)
        if job["metadata"]["annotations"].get("gpuledger.io/remediation") != found["id"]:
            raise StepError(f"the Job is not of the remediation {found['id']}: {job['metadata']}")

    def end(self) -> None:
        """The monitor reports the node healthy, which is given back as it was; the incident has ended."""
        self._report("recovers", message="The check of the cluster passed", fatal=False)
        wait(f"node {self._node} is as before", self._not_given_back, NODE_S)
        wait("the incident has ended", lambda: f"open are {found}" if (found := self._incidents()) else "", NODE_S)
        (ended,) = self._incidents("--all")
        if ended["ended_at"] is None:
            raise StepError(f"the incident is {ended}")

    def rules_are_as_before(self) -> None:
        """Another revision of the release with the same rules has recorded none."""
        if (found := self._rules()) != self._in_force:
            raise StepError(f"the rules in force are {found}, and were {self._in_force}")

    def _rules(self) -> list[Object]:
        """Which documents are in force, and since when."""
        rows = [*self._asked("quarantine", "rules"), *self._asked("remediation", "rules")]
        return [{key: one[key] for key in ("version", "applied_at")} for one in rows]

    def _rules_missing(self) -> str:
        found = self._rules()
        return "" if len(found) == 2 else f"in force are {found}"

    def _not_set_aside(self) -> str:
        node = self._tools.one("node", self._node)
        metadata, spec = node["metadata"], node["spec"]
        is_aside = spec.get("unschedulable") and TAINT in _taints(node) and ISOLATION in metadata.get("annotations", {})
        return "" if is_aside and metadata["labels"].get(LABEL) == "true" else f"it is {_kept(node)}"

    def _unexplained(self) -> str:
        """The Node is changed a moment before its outcome is recorded."""
        found = json.loads(self._ledger("why", "node", self._node, "--output", "json"))
        requests = [(one["ruleset"], one["state"], {hop["hop"] for hop in one["hops"]}) for one in found["requests"]]
        is_explained = [(ruleset, state) for ruleset, state, _ in requests] == [(RULESET, "cordoned")]
        hops = {hop for *_, names in requests for hop in names}
        is_reported = (MONITOR, CHECK) in [(one["monitor"], one["check"]) for one in found["reports"]]
        is_whole = is_explained and is_reported and hops >= HOPS
        return "" if is_whole else f"it says {json.dumps(found)}"

    def _not_given_back(self) -> str:
        found = _kept(self._tools.one("node", self._node))
        return "" if found == self._before else f"it is {found}, and was {self._before}"

    def _not_remedied(self) -> str:
        found = self._remediations()
        is_over = [(one["remedy"], one["state"]) for one in found] == [(REMEDY, "Succeeded")]
        return "" if is_over else f"its remediations are {found}"

    def _incidents(self, *more: str) -> list[Object]:
        found = self._asked("incident", "list", "--node", self._node, *more)
        return [one for one in found if one["check_name"] == CHECK]

    def _remediations(self) -> list[Object]:
        return [one for one in self._asked("remediation", "list") if one["node"] == self._node]

    def _asked(self, *command: str) -> list[Object]:
        found: list[Object] = json.loads(self._ledger(*command, "--output", "json"))
        return found

    def _ledger(self, *command: str) -> str:
        return self._tools.here("exec", "deployment/gpuledger", "--", "gpuledger", *command)

    def _report(self, what: str, *, message: str, fatal: bool) -> None:
        """Have a pod on the node report over its agent's socket, which is there for monitors alone."""
        fields = {"monitor": MONITOR, "check": CHECK, "message": message, "fatal": fatal, "healthy": not fatal}
        container = {
            "name": "main",
            "image": self._image,
            "command": ["python", "-c", REPORT.format(sockets=SOCKETS, **fields)],
            "securityContext": {"runAsUser": 0, "runAsNonRoot": False},
            "volumeMounts": [{"name": "sockets", "mountPath": SOCKETS}],
        }
        spec = {
            "nodeName": self._node,
            "restartPolicy": "Never",
            "tolerations": ANYWHERE,
            "automountServiceAccountToken": False,
            "containers": [container],
            "volumes": [{"name": "sockets", "hostPath": {"path": SOCKETS, "type": "DirectoryOrCreate"}}],
        }
        metadata = {"name": f"check-{what}", "namespace": self._tools.namespace}
        self._tools.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        wait(f"pod {metadata['name']} Succeeded", lambda: self._unreported(metadata["name"]), REPORT_S)
        self._tools.here("delete", "pod", metadata["name"])

    def _unreported(self, pod: str) -> str:
        status = self._tools.one("pod", pod, "--namespace", self._tools.namespace).get("status", {})
        if status.get("phase") == "Failed":
            raise StepError(f"pod {pod} failed:\n{self._tools.here('logs', pod)}")
        return "" if status.get("phase") == "Succeeded" else f"its status is {json.dumps(status)}"


def _taints(node: Object) -> list[Object]:
    found = [{key: one[key] for key in one if key != "timeAdded"} for one in node["spec"].get("taints") or []]
    return sorted(found, key=lambda one: (one["key"], one["effect"]))


def _kept(node: Object) -> Object:
    """What of a Node is to be as before: whether it takes pods, its taints and labels, and what of it is ours."""
    metadata, spec = node["metadata"], node["spec"]
    return {
        "unschedulable": bool(spec.get("unschedulable")),
        "taints": _taints(node),
        "labels": metadata.get("labels") or {},
        "isolation": (metadata.get("annotations") or {}).get(ISOLATION),
    }
