"""Which strategy each built-in resource of the core, policy, apps, batch, scheduling and storage groups has."""

from collections.abc import Mapping

from gpuledger.local.kubeapi.resources import Strategy
from gpuledger.local.kubeapi.strategies.core_cluster import (
    EndpointsStrategy,
    LimitRangeStrategy,
    PriorityClassStrategy,
    ResourceQuotaStrategy,
    ServiceStrategy,
    StorageClassStrategy,
    VolumeClaimStrategy,
    VolumeStrategy,
)
from gpuledger.local.kubeapi.strategies.core_data import ConfigMapStrategy, SecretStrategy, ServiceAccountStrategy
from gpuledger.local.kubeapi.strategies.core_jobs import CronJobStrategy, JobStrategy
from gpuledger.local.kubeapi.strategies.core_namespaces import NamespaceStrategy
from gpuledger.local.kubeapi.strategies.core_workloads import (
    DaemonSetStrategy,
    DeploymentStrategy,
    ReplicaSetStrategy,
    StatefulSetStrategy,
)
from gpuledger.local.kubeapi.strategies.nodes import NodeStrategy
from gpuledger.local.kubeapi.strategies.pods import PodStrategy
from gpuledger.local.kubeapi.strategies.policy import PdbStrategy

STRATEGIES: Mapping[tuple[str, str], Strategy] = {
    ("", "pods"): PodStrategy(),
    ("", "nodes"): NodeStrategy(),
    ("", "namespaces"): NamespaceStrategy(),
    ("", "configmaps"): ConfigMapStrategy(),
    ("", "secrets"): SecretStrategy(),
    ("", "serviceaccounts"): ServiceAccountStrategy(),
    ("", "services"): ServiceStrategy(),
    ("", "endpoints"): EndpointsStrategy(),
    ("", "persistentvolumeclaims"): VolumeClaimStrategy(),
    ("", "persistentvolumes"): VolumeStrategy(),
    ("", "resourcequotas"): ResourceQuotaStrategy(),
    ("", "limitranges"): LimitRangeStrategy(),
    ("policy", "poddisruptionbudgets"): PdbStrategy(),
    ("apps", "deployments"): DeploymentStrategy(),
    ("apps", "replicasets"): ReplicaSetStrategy(),
    ("apps", "statefulsets"): StatefulSetStrategy(),
    ("apps", "daemonsets"): DaemonSetStrategy(),
    ("batch", "jobs"): JobStrategy(),
    ("batch", "cronjobs"): CronJobStrategy(),
    ("scheduling.k8s.io", "priorityclasses"): PriorityClassStrategy(),
    ("storage.k8s.io", "storageclasses"): StorageClassStrategy(),
}
"""By group and plural."""
