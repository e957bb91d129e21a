"""What admission would say of a pool that is only supposed: by itself, and because of what is there already. Pure."""

from collections.abc import Iterator
from typing import Final

from gpuledger.api.kinds import Resource
from gpuledger.domain.inventory.state import DEFAULT_SETTINGS
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.edge.admission.cache import AdmissionCache
from gpuledger.edge.admission.rules.decide import decide
from gpuledger.edge.admission.serving.review import CREATE, UPDATE, AdmissionRequest, Object, Requester, part
from gpuledger.events.pool import DeviceFilter, PoolDefined
from gpuledger.events.settings import SLICES_PER_UNIT_MAX

_WIDEST: Final = DEFAULT_SETTINGS._replace(max_slices_per_device=SLICES_PER_UNIT_MAX)
"""Under which nothing is refused because of the module's settings."""


def problem_of(resource: Resource, obj: Object) -> str | None:
    """Why admission would refuse the pool wherever it is applied; None where it would not."""
    cache = AdmissionCache()
    cache.inventory.settings.put(_WIDEST)
    response = decide(_request(resource, CREATE, obj), cache)
    return None if response.is_allowed else f"{response.reason}: {response.message}"


def remarks(resource: Resource, obj: Object, pool: str, said: PoolDefined, state: PoolFacts) -> Iterator[str]:
    """What admission would say by what is there: why it would refuse the pool, or what it would warn of.

    Args:
        resource: the pool's kind.
        obj: its manifest, with defaults.
        pool: its id.
        said: the same as a fact.
        state: what is there.
    """
    row, cache = state.pool.get(pool), _cache(state)
    was = None if row is None else row.spec.definition
    if was is not None and said.model_copy(update={name: getattr(was, name) for name in _OUTSIDE_SPEC}) == was:
        return
    response = decide(_request(resource, CREATE, obj), cache)
    warnings = response.warnings
    if response.is_allowed and was is not None:
        response = decide(_request(resource, UPDATE, _unchangeable(said), _unchangeable(was)), cache)
    if not response.is_allowed:
        yield f"The API server would refuse this: {response.reason}: {response.message}"
    yield from (f"{warning[:1].upper()}{warning[1:]}" for warning in warnings)


_OUTSIDE_SPEC: Final = ("uid", "generation", "deleting", "maintenance")


def _cache(state: PoolFacts) -> AdmissionCache:
    """Admission's cache of the module's settings and of these pools."""
    cache = AdmissionCache()
    cache.pools = state
    cache.inventory.settings.put(state.settings_in_force())
    return cache


def _request(resource: Resource, operation: str, new: Object, old: Object | None = None) -> AdmissionRequest:
    metadata = part(new, "metadata")
    name, namespace = str(metadata.get("name") or ""), str(metadata.get("namespace") or "")
    return AdmissionRequest("", operation, resource.plural, name, namespace, Requester(""), new, old or {})


def _unchangeable(said: PoolDefined) -> Object:
    """What of a pool cannot change, as a manifest has it; one fact always makes the same of it."""
    resource = {
        "unit": said.unit,
        "migProfile": said.mig_profile,
        "slicesPerUnit": said.slices_per_unit,
        "maxDevicesPerNode": said.devices_per_node_max,
    }
    chosen = {"include": _filter(said.include), "exclude": said.exclude and _filter(said.exclude)}
    return {
        "spec": {
            "provider": said.provider,
            "backend": said.backend,
            "resource": _given(resource),
            "deviceSelector": _given(chosen),
        }
    }


def _filter(given: DeviceFilter) -> Object:
    return _given(
        {
            "inventoryIDs": list(given.inventory_ids),
            "products": list(given.products),
            "pciVendors": list(given.pci_vendors),
            "pciDevices": list(given.pci_devices),
            "migCapable": given.mig_capable,
            "migProfiles": list(given.mig_profiles),
        }
    )


def _given(fields: Object) -> Object:
    return {name: value for name, value in fields.items() if value is False or value}
