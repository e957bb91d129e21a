"""The strategies of leases, events, dynamic resource allocation, RBAC and webhooks, by group and plural."""

from collections.abc import Mapping

from gpuledger.local.kubeapi.resources import Strategy
from gpuledger.local.kubeapi.strategies import dra, events, leases, rbac, webhook_configurations

RESOURCE = "resource.k8s.io"
ADMISSION = "admissionregistration.k8s.io"

STRATEGIES: Mapping[tuple[str, str], Strategy] = {
    ("coordination.k8s.io", "leases"): leases.LeaseStrategy(),
    ("", "events"): events.CoreEventStrategy(),
    ("events.k8s.io", "events"): events.EventStrategy(),
    (RESOURCE, "resourceslices"): dra.ResourceSliceStrategy(),
    (RESOURCE, "deviceclasses"): dra.DeviceClassStrategy(),
    (RESOURCE, "resourceclaims"): dra.ResourceClaimStrategy(),
    (RESOURCE, "resourceclaimtemplates"): dra.ResourceClaimTemplateStrategy(),
    (RESOURCE, "devicetaintrules"): dra.DeviceTaintRuleStrategy(),
    (rbac.GROUP, "roles"): rbac.RoleStrategy(),
    (rbac.GROUP, "clusterroles"): rbac.ClusterRoleStrategy(),
    (rbac.GROUP, "rolebindings"): rbac.RoleBindingStrategy(),
    (rbac.GROUP, "clusterrolebindings"): rbac.ClusterRoleBindingStrategy(),
    (ADMISSION, "mutatingwebhookconfigurations"): webhook_configurations.MutatingConfigurationStrategy(),
    (ADMISSION, "validatingwebhookconfigurations"): webhook_configurations.ValidatingConfigurationStrategy(),
}
"""Strategies have no state; each is used by every version of its resource."""
