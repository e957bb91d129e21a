"""Adds to the official client's models what they lack: how the lists and maps of built-in types merge.

Keys are `Type.field`, without the version. A list that is not listed here is atomic; structs and maps are not. The
tables are read when the shapes are generated, never while serving.
"""

from typing import Any

KEYED: dict[str, str] = {
    "ObjectMeta.ownerReferences": "uid",
    "PodSpec.containers": "name",
    "PodSpec.initContainers": "name",
    "PodSpec.ephemeralContainers": "name",
    "PodSpec.hostAliases": "ip",
    "PodSpec.imagePullSecrets": "name",
    "PodSpec.schedulingGates": "name",
    "PodStatus.podIPs": "ip",
    "Container.env": "name",
    "Container.volumeMounts": "mountPath",
    "Container.volumeDevices": "devicePath",
    "EphemeralContainer.env": "name",
    "EphemeralContainer.volumeMounts": "mountPath",
    "EphemeralContainer.volumeDevices": "devicePath",
    "ContainerStatus.volumeMounts": "mountPath",
    "ContainerStatus.allocatedResourcesStatus": "name",
    "NodeStatus.addresses": "type",
    "ServiceAccount.secrets": "name",
    "MutatingWebhookConfiguration.webhooks": "name",
    "ValidatingWebhookConfiguration.webhooks": "name",
    "MutatingWebhook.matchConditions": "name",
    "ValidatingWebhook.matchConditions": "name",
    "ValidatingAdmissionPolicySpec.matchConditions": "name",
    "ValidatingAdmissionPolicySpec.variables": "name",
    "JSONSchemaProps.x-kubernetes-validations": "rule",
    "ResourceClaimStatus.reservedFor": "uid",
}
"""Lists keyed by one field, both for server-side apply and for strategic merge patches."""

KEYED_FOR_APPLY: dict[str, tuple[str, ...]] = {
    "ResourceRequirements.claims": ("name",),
    "ResourceClaimStatus.devices": ("driver", "device", "pool", "shareID"),
    "Container.ports": ("containerPort", "protocol"),
    "EphemeralContainer.ports": ("containerPort", "protocol"),
    "ServiceSpec.ports": ("port", "protocol"),
    "PodSpec.topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "PodSpec.volumes": ("name",),
    "PodSpec.resourceClaims": ("name",),
    "PodStatus.resourceClaimStatuses": ("name",),
    "AllocatedDeviceStatus.conditions": ("type",),
}
"""Lists keyed for server-side apply; patches treat them as `PATCHES` says."""

KEY_DEFAULTS: dict[str, dict[str, Any]] = {
    "Container.ports": {"protocol": "TCP"},
    "EphemeralContainer.ports": {"protocol": "TCP"},
    "ServiceSpec.ports": {"protocol": "TCP"},
}

SETS = frozenset(
    {"ObjectMeta.finalizers", "NodeSpec.podCIDRs", "ValidatingAdmissionPolicyBindingSpec.validationActions"}
)
"""Lists of scalars that apply treats as a set."""

PATCHES: dict[str, tuple[str, str]] = {
    "ObjectMeta.finalizers": ("merge", ""),
    "NodeSpec.podCIDRs": ("merge", ""),
    "Container.ports": ("merge", "containerPort"),
    "EphemeralContainer.ports": ("merge", "containerPort"),
    "ServiceSpec.ports": ("merge", "port"),
    "PodSpec.topologySpreadConstraints": ("merge", "topologyKey"),
    "PodSpec.volumes": ("merge,retainKeys", "name"),
    "PodSpec.resourceClaims": ("merge,retainKeys", "name"),
    "PodStatus.resourceClaimStatuses": ("merge,retainKeys", "name"),
    "PodStatus.hostIPs": ("merge", "ip"),
    "JobStatus.conditions": ("merge", "type"),
    "DeploymentSpec.strategy": ("retainKeys", ""),
    "PodDisruptionBudgetSpec.selector": ("replace", ""),
}
"""The strategy and the merge key of strategic merge patches."""

ATOMIC_CONDITIONS = frozenset({"JobStatus.conditions", "AllocatedDeviceStatus.conditions"})
"""Lists called `conditions` are keyed by `type`, except for these."""

ATOMIC_TYPES = frozenset(
    {
        "ConfigMapKeySelector",
        "FileKeySelector",
        "LabelSelector",
        "LocalObjectReference",
        "MatchResources",
        "NamedRuleWithOperations",
        "NodeSelector",
        "NodeSelectorTerm",
        "ObjectFieldSelector",
        "ObjectReference",
        "OwnerReference",
        "ParamKind",
        "ParamRef",
        "ResourceFieldSelector",
        "RoleRef",
        "ScopeSelector",
        "ScopedResourceSelectorRequirement",
        "SecretKeySelector",
        "Subject",
        "TypedLocalObjectReference",
        "Variable",
    }
)
"""Structs that have one owner as a whole."""

ATOMIC_MAPS = frozenset(
    {
        "PodSpec.nodeSelector",
        "ServiceSpec.selector",
    }
)
"""Maps that have one owner as a whole."""

MICRO_TIMES = frozenset(
    {
        "Event.eventTime",
        "EventSeries.lastObservedTime",
        "LeaseSpec.acquireTime",
        "LeaseSpec.renewTime",
    }
)
"""Times with exactly six digits of a second's fraction."""

INT64 = frozenset(
    {
        "LinuxContainerUser.gid",
        "LinuxContainerUser.uid",
        "NodeSwapStatus.capacity",
        "SleepAction.seconds",
        "ContainerImage.sizeBytes",
        "DeviceAttribute.int",
        "DeviceSubRequest.count",
        "ExactDeviceRequest.count",
        "JSONSchemaProps.maxItems",
        "JSONSchemaProps.maxLength",
        "JSONSchemaProps.maxProperties",
        "JSONSchemaProps.minItems",
        "JSONSchemaProps.minLength",
        "JSONSchemaProps.minProperties",
        "CronJobSpec.startingDeadlineSeconds",
        "ResourcePool.generation",
        "ResourcePool.resourceSliceCount",
    }
)
INT64_NAMES = frozenset(
    {
        "activeDeadlineSeconds",
        "deletionGracePeriodSeconds",
        "expirationSeconds",
        "fsGroup",
        "generation",
        "gracePeriodSeconds",
        "observedGeneration",
        "runAsGroup",
        "runAsUser",
        "supplementalGroups",
        "terminationGracePeriodSeconds",
        "tolerationSeconds",
    }
)
"""Integers of 64 bits, by type and field or by name alone; all others have 32."""

INT_OR_STRING = frozenset(
    {
        "HTTPGetAction.port",
        "PodDisruptionBudgetSpec.maxUnavailable",
        "PodDisruptionBudgetSpec.minAvailable",
        "RollingUpdateDaemonSet.maxSurge",
        "RollingUpdateDaemonSet.maxUnavailable",
        "RollingUpdateDeployment.maxSurge",
        "RollingUpdateDeployment.maxUnavailable",
        "ServicePort.targetPort",
        "TCPSocketAction.port",
    }
)

QUANTITIES = frozenset(
    {
        "CapacityRequestPolicy.default",
        "CapacityRequestPolicyRange.max",
        "CapacityRequestPolicyRange.min",
        "CapacityRequestPolicyRange.step",
        "CapacityRequestPolicy.validValues",
        "CapacityRequirements.requests",
        "ContainerStatus.allocatedResources",
        "Counter.value",
        "DeviceCapacity.value",
        "DeviceRequestAllocationResult.consumedCapacity",
        "EmptyDirVolumeSource.sizeLimit",
        "LimitRangeItem.default",
        "LimitRangeItem.defaultRequest",
        "LimitRangeItem.max",
        "LimitRangeItem.maxLimitRequestRatio",
        "LimitRangeItem.min",
        "NodeStatus.allocatable",
        "NodeStatus.capacity",
        "PodSpec.overhead",
        "PodStatus.allocatedResources",
        "ResourceFieldSelector.divisor",
        "ResourceQuotaSpec.hard",
        "ResourceQuotaStatus.hard",
        "ResourceQuotaStatus.used",
        "ResourceRequirements.limits",
        "ResourceRequirements.requests",
        "VolumeResourceRequirements.limits",
        "VolumeResourceRequirements.requests",
    }
)
"""Amounts such as `500m` or `2Gi`, or maps of them."""
