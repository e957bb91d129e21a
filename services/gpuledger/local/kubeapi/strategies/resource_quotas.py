"""ResourceQuotas as objects: which names and amounts they may limit; `quotas` counts and enforces them."""

from collections.abc import Iterator

from gpuledger.domain.quantities import amount
from gpuledger.edge.kube.schema.causes import Cause, Object, invalid
from gpuledger.edge.kube.schema.object_names import qualified_name_problem
from gpuledger.local.kubeapi.strategies.core_podspec import HUGE_PAGES, is_extended
from gpuledger.local.kubeapi.strategies.core_shared import BuiltinStrategy, at, part_of

_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_COUNTED = frozenset(
    "pods services replicationcontrollers resourcequotas secrets configmaps persistentvolumeclaims "
    "services.nodeports services.loadbalancers".split()
)
"""Objects, which are counted one by one."""

_STANDARD = frozenset(
    {*_COUNTED, *_COMPUTE, *(f"{part}.{name}" for part in ("requests", "limits") for name in _COMPUTE)}
    | {"requests.storage"}
)
"""The names without a domain that a quota may limit, besides those of huge pages."""


class ResourceQuotaStrategy(BuiltinStrategy):
    """The behaviour of quotas."""

    has_generation = False
    answers_deleted_object = True
    status_on_create = {}

    def default(self, obj: Object) -> None:
        """A quota has a spec."""
        part_of(obj, "spec")

    def validate(self, obj: Object) -> list[Cause]:
        """Everything wrong with the limits."""
        return [*_amounts_causes(at(obj, "spec", "hard"), "spec.hard")]

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[Cause]:
        """As on creation; `status` checks its own amounts."""
        if not subresource:
            return self.validate(obj)
        return [
            cause for part in ("hard", "used") for cause in _amounts_causes(at(obj, "status", part), f"status.{part}")
        ]


def _amounts_causes(amounts: Object, field: str) -> Iterator[Cause]:
    for name, value in amounts.items():
        path = f"{field}[{name}]"
        yield from _name_causes(name, path)
        if amount(value) < 0:
            yield invalid(path, value, "must be greater than or equal to 0")
        if (name in _COUNTED or is_extended(name)) and amount(value).denominator != 1:
            yield invalid(path, value, "must be an integer")


def _name_causes(name: str, field: str) -> Iterator[Cause]:
    if problem := qualified_name_problem(name):
        yield invalid(field, name, problem)
    elif "/" not in name and name not in _STANDARD and not name.startswith((HUGE_PAGES, f"requests.{HUGE_PAGES}")):
        yield invalid(field, name, "must be a standard resource for quota")
