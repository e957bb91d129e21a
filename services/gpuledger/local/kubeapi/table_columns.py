"""Lists the columns of `kubectl get` tables for built-in types."""

from gpuledger.local.kubeapi.table_cells import (
    NONE,
    Cell,
    Cells,
    age,
    ago,
    claim_state,
    containers,
    count,
    event_object,
    event_seen,
    event_text,
    field,
    job_duration,
    job_state,
    joined,
    named,
    node_address,
    node_roles,
    node_status,
    ports,
    ratio,
    role,
    selector,
    truth,
    unnamed,
    with_age,
)
from gpuledger.local.kubeapi.table_pods import POD_COLUMNS
from gpuledger.local.kubeapi.tables_age import UNKNOWN

UNSET = "<unset>"
"""Policies have no parameters here."""

_SECONDS: tuple[tuple[str, Cell], ...] = (
    ("+Containers", containers("name")),
    ("+Images", containers("image")),
    ("+Selector", selector("spec.selector.matchLabels")),
)

BUILTIN_TABLES: dict[tuple[str, str], Cells] = {
    ("", "nodes"): named(
        ("Status", node_status),
        ("Roles", node_roles),
        ("Age", age),
        ("Version", field("status.nodeInfo.kubeletVersion")),
        ("+Internal-IP", node_address("InternalIP")),
        ("+External-IP", node_address("ExternalIP")),
        ("+OS-Image", field("status.nodeInfo.osImage", UNKNOWN)),
        ("+Kernel-Version", field("status.nodeInfo.kernelVersion", UNKNOWN)),
        ("+Container-Runtime", field("status.nodeInfo.containerRuntimeVersion", UNKNOWN)),
    ),
    ("", "namespaces"): with_age(("Status", field("status.phase"))),
    ("", "configmaps"): with_age(("Data", count("data", "binaryData"))),
    ("", "secrets"): with_age(("Type", field("type")), ("Data", count("data"))),
    ("", "serviceaccounts"): with_age(("Secrets", count("secrets"))),
    ("", "services"): named(
        ("Type", field("spec.type")),
        ("Cluster-IP", field("spec.clusterIP", NONE)),
        ("External-IP", joined("spec.externalIPs")),
        ("Port(s)", ports),
        ("Age", age),
        ("+Selector", selector("spec.selector")),
    ),
    ("", "events"): unnamed(
        ("Last Seen", event_seen),
        ("Type", field("type")),
        ("Reason", field("reason")),
        ("Object", event_object),
        ("+Subobject", field("involvedObject.fieldPath")),
        ("+Source", field("source.component")),
        ("Message", event_text),
        ("+First Seen", ago("firstTimestamp")),
        ("+Count", field("count", 1)),
        ("+Name", field("metadata.name")),
    ),
    ("", "resourcequotas"): with_age(("Request", selector("status.used")), ("Limit", selector("status.hard"))),
    ("", "limitranges"): named(("Created At", field("metadata.creationTimestamp"))),
    ("apps", "deployments"): named(
        ("Ready", ratio("status.readyReplicas", "spec.replicas")),
        ("Up-to-date", field("status.updatedReplicas", 0)),
        ("Available", field("status.availableReplicas", 0)),
        ("Age", age),
        *_SECONDS,
    ),
    ("apps", "daemonsets"): named(
        ("#Desired", field("status.desiredNumberScheduled", 0)),
        ("#Current", field("status.currentNumberScheduled", 0)),
        ("#Ready", field("status.numberReady", 0)),
        ("#Up-to-date", field("status.updatedNumberScheduled", 0)),
        ("#Available", field("status.numberAvailable", 0)),
        ("Node Selector", selector("spec.template.spec.nodeSelector")),
        ("Age", age),
        *_SECONDS,
    ),
    ("apps", "statefulsets"): named(("Ready", ratio("status.readyReplicas", "spec.replicas")), ("Age", age), *_SECONDS),
    ("batch", "jobs"): named(
        ("Status", job_state),
        ("Completions", ratio("status.succeeded", "spec.completions")),
        ("Duration", job_duration),
        ("Age", age),
        *_SECONDS,
    ),
    ("batch", "cronjobs"): named(
        ("Schedule", field("spec.schedule")),
        ("Timezone", field("spec.timeZone", NONE)),
        ("Suspend", truth("spec.suspend")),
        ("#Active", count("status.active")),
        ("Last Schedule", ago("status.lastScheduleTime", NONE)),
        ("Age", age),
    ),
    ("policy", "poddisruptionbudgets"): with_age(
        ("Min Available", field("spec.minAvailable", "N/A")),
        ("Max Unavailable", field("spec.maxUnavailable", "N/A")),
        ("#Allowed Disruptions", field("status.disruptionsAllowed", 0)),
    ),
    ("coordination.k8s.io", "leases"): with_age(("Holder", field("spec.holderIdentity"))),
    ("rbac.authorization.k8s.io", "roles"): named(("Created At", field("metadata.creationTimestamp"))),
    ("rbac.authorization.k8s.io", "clusterroles"): named(("Created At", field("metadata.creationTimestamp"))),
    ("rbac.authorization.k8s.io", "rolebindings"): with_age(("Role", role)),
    ("rbac.authorization.k8s.io", "clusterrolebindings"): with_age(("Role", role)),
    ("apiextensions.k8s.io", "customresourcedefinitions"): named(("Created At", field("metadata.creationTimestamp"))),
    ("scheduling.k8s.io", "priorityclasses"): with_age(
        ("#Value", field("value", 0)),
        ("Global-Default", lambda obj, _: bool(obj.get("globalDefault"))),
        ("PreemptionPolicy", field("preemptionPolicy")),
    ),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): with_age(("#Webhooks", count("webhooks"))),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): with_age(("#Webhooks", count("webhooks"))),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): with_age(
        ("#Validations", count("spec.validations")), ("ParamKind", lambda obj, _: UNSET)
    ),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): with_age(
        ("PolicyName", field("spec.policyName")), ("ParamRef", lambda obj, _: UNSET)
    ),
    ("resource.k8s.io", "resourceslices"): named(
        ("Node", field("spec.nodeName")),
        ("Driver", field("spec.driver")),
        ("Pool", field("spec.pool.name")),
        ("Age", age),
    ),
    ("resource.k8s.io", "resourceclaims"): with_age(("State", claim_state)),
}
"""By group and plural; other built-in types show name and age."""

BUILTIN_TABLES["", "pods"] = named(*POD_COLUMNS)
BUILTIN_TABLES["events.k8s.io", "events"] = BUILTIN_TABLES["", "events"]
