"""What admission would answer to a pool's manifest: on its own, and beside the recorded pools. Pure."""

from collections.abc import Iterator
from typing import Final

from gpuledger.api.kinds import Resource
from gpuledger.domain.inventory.state import DEFAULT_SETTINGS
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.edge.admission.cache import AdmissionCache
from gpuledger.edge.admission.rules.decide import decide
from gpuledger.edge.admission.rules.pools import immutable_error
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.webhooks.serving.review import CREATE, AdmissionRequest, AdmissionResponse, Object, Requester
from gpuledger.events.pool import PoolDefined
from gpuledger.events.settings import SLICES_PER_UNIT_MAX

_WIDEST: Final = DEFAULT_SETTINGS._replace(max_slices_per_device=SLICES_PER_UNIT_MAX)
"""Settings of the module under which admission refuses nothing that it might allow under others."""

_OUTSIDE_SPEC: Final = ("uid", "generation", "deleting", "maintenance")
_IMMUTABLE: Final = {
    "provider": ("provider",),
    "backend": ("backend",),
    "resource": ("unit", "mig_profile", "slices_per_unit", "devices_per_node_max"),
    "deviceSelector": ("include", "exclude"),
}
"""Fields of a spec that cannot change, and the parts of a definition that come from them."""


def refusal(resource: Resource, obj: Object) -> str | None:
    """Why admission would refuse the pool in any cluster; None if it would not."""
    cache = AdmissionCache()
    cache.inventory.settings.put(_WIDEST)
    response = _response(resource, obj, cache)
    return None if response.is_allowed else f"{response.reason}: {response.message}"


def admission_notes(
    resource: Resource, obj: Object, pool: str, definition: PoolDefined, state: PoolFacts
) -> Iterator[str]:
    """Why admission would refuse the pool beside the recorded ones, and its warnings.

    Args:
        resource: the pool's kind.
        obj: its manifest, with defaults.
        pool: its id.
        definition: the fact that the watchers would record of it.
        state: the recorded pools.
    """
    row = state.pool.get(pool)
    before = None if row is None else row.spec.definition
    if before is not None and not any(
        getattr(before, name) != value for name, value in definition if name not in _OUTSIDE_SPEC
    ):
        return
    cache = AdmissionCache()
    cache.pools = state
    cache.inventory.settings.put(state.settings_in_force())
    response = _response(resource, obj, cache)
    warnings = response.warnings
    if response.is_allowed and before is not None and (changed := _changed(before, definition)):
        error = immutable_error(changed)
        response = AdmissionResponse(error.reason, str(error))
    if not response.is_allowed:
        yield f"The API server would refuse this: {response.reason}: {response.message}"
    yield from (f"{warning[:1].upper()}{warning[1:]}" for warning in warnings)


def _changed(before: PoolDefined, after: PoolDefined) -> list[str]:
    """The fields that differ and cannot change."""

    def differs(parts: tuple[str, ...]) -> bool:
        return any(getattr(before, one) != getattr(after, one) for one in parts)

    return [field for field, parts in _IMMUTABLE.items() if differs(parts)]


def _response(resource: Resource, obj: Object, cache: AdmissionCache) -> AdmissionResponse:
    metadata = mapping(obj, "metadata")
    name, namespace = str(metadata.get("name") or ""), str(metadata.get("namespace") or "")
    return decide(AdmissionRequest("", CREATE, resource.plural, name, namespace, Requester(""), obj), cache)
