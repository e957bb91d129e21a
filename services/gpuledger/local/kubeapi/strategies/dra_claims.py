"""Validates the requests of claims and the allocations in their status."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from gpuledger.edge.kube.schema.causes import Cause, Object, forbidden, invalid, not_supported, required
from gpuledger.edge.kube.schema.object_names import dns_subdomain_problem
from gpuledger.local.kubeapi.strategies import dra_checks as check

REQUESTS_MAX = 32
CONSTRAINTS_MAX = 32
CONFIGS_MAX = 32
FIRST_AVAILABLE_MAX = 8
RESULTS_MAX = 32
RESERVED_MAX = 256

EXACT, ALL = "ExactCount", "All"
_SOURCES = ("FromClaim", "FromClass")
_NOT_A_REQUEST = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"

RequestNames = Mapping[str, frozenset[str]]
"""The names of a claim's requests, each with those of its subrequests."""

DeviceId = tuple[str, str, str, str]
"""Driver, pool, device and share."""


def fill_requests(devices: Mapping[str, Any]) -> None:
    """Fill in defaults in place: exactly one device."""
    for request in devices.get("requests") or ():
        for one in [request.get("exactly"), *(request.get("firstAvailable") or ())]:
            if one is not None:
                one["allocationMode"] = one.get("allocationMode") or EXACT
                if one["allocationMode"] == EXACT and not one.get("count"):
                    one["count"] = 1
                for toleration in one.get("tolerations") or ():
                    toleration["operator"] = toleration.get("operator") or "Equal"


def claim_causes(devices: Mapping[str, Any], field: str) -> Iterator[Cause]:
    """Everything wrong with a claim's or a template's `spec.devices`."""
    names = request_names(devices)
    yield from check.unique_items(
        devices.get("requests"), REQUESTS_MAX, f"{field}.requests", _request, lambda one: one.get("name") or ""
    )
    yield from check.items(
        devices.get("constraints"), CONSTRAINTS_MAX, f"{field}.constraints", partial(_constraint, names=names)
    )
    yield from check.items(devices.get("config"), CONFIGS_MAX, f"{field}.config", partial(_config, names=names))


def request_names(devices: Mapping[str, Any]) -> RequestNames:
    """The names that allocations and constraints may refer to."""
    return {
        request.get("name") or "": frozenset(one.get("name") or "" for one in request.get("firstAvailable") or ())
        for request in devices.get("requests") or ()
    }


def status_causes(claim: Object, old: Object) -> Iterator[Cause]:
    """Everything wrong with a claim's new status."""
    status, before = claim.get("status") or {}, old.get("status") or {}
    allocation, was = status.get("allocation"), before.get("allocation")
    yield from check.unique_items(
        status.get("reservedFor"), RESERVED_MAX, "status.reservedFor", _consumer, lambda one: one.get("uid")
    )
    yield from check.unique_items(
        status.get("devices"), -1, "status.devices", partial(_device, allocated=allocated(allocation)), device_id
    )
    yield from _reservation_causes(claim, status, before)
    if allocation is not None and was is not None:
        if allocation != was:
            yield invalid("status.allocation", allocation, "field is immutable")
    elif allocation is not None:
        names = request_names((claim.get("spec") or {}).get("devices") or {})
        yield from _allocation_causes(allocation, names)


def allocated(allocation: Mapping[str, Any] | None) -> frozenset[DeviceId]:
    """The devices of an allocation."""
    results = ((allocation or {}).get("devices") or {}).get("results") or ()
    return frozenset(device_id(result) for result in results)


def device_id(device: Mapping[str, Any]) -> DeviceId:
    """The identity of a device, or of a share of it."""
    driver, pool, name, share = (device.get(part) or "" for part in ("driver", "pool", "device", "shareID"))
    return driver, pool, name, share


def _request(request: Object, field: str) -> Iterator[Cause]:
    yield from check.label_name(request.get("name"), f"{field}.name")
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable")
    if exactly is None and not alternatives:
        yield required(field, "exactly one of `exactly` or `firstAvailable` is required")
    elif exactly is not None and alternatives:
        message = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"
        yield invalid(field, None, message)
    elif exactly is not None:
        yield from _device_request(exactly, f"{field}.exactly")
    else:
        yield from check.unique_items(
            alternatives,
            FIRST_AVAILABLE_MAX,
            f"{field}.firstAvailable",
            _alternative,
            lambda one: one.get("name") or "",
        )


def _alternative(request: Object, field: str) -> Iterator[Cause]:
    yield from check.label_name(request.get("name"), f"{field}.name")
    yield from _device_request(request, field)


def _device_request(request: Object, field: str) -> Iterator[Cause]:
    name = request.get("deviceClassName")
    if not name:
        yield required(f"{field}.deviceClassName")
    elif problem := dns_subdomain_problem(name):
        yield invalid(f"{field}.deviceClassName", name, problem)
    yield from check.selectors(request.get("selectors"), f"{field}.selectors")
    yield from _mode_causes(request.get("allocationMode") or "", request.get("count") or 0, field)


def _mode_causes(mode: str, count: int, field: str) -> Iterator[Cause]:
    if mode == ALL and count:
        yield invalid(f"{field}.count", count, f"must not be specified when allocationMode is '{ALL}'")
    elif mode == EXACT and count <= 0:
        yield invalid(f"{field}.count", count, "must be greater than zero")
    elif mode not in {ALL, EXACT}:
        yield not_supported(f"{field}.allocationMode", mode, (ALL, EXACT))


def _constraint(constraint: Object, field: str, *, names: RequestNames) -> Iterator[Cause]:
    yield from _references(constraint.get("requests"), f"{field}.requests", names)
    for name in ("matchAttribute", "distinctAttribute"):
        if constraint.get(name) is not None:
            yield from check.fully_qualified(constraint[name], f"{field}.{name}")
            return
    yield required(field, 'exactly one of "matchAttribute" or "distinctAttribute" is required')


def _config(config: Object, field: str, *, names: RequestNames) -> Iterator[Cause]:
    yield from _references(config.get("requests"), f"{field}.requests", names)


def _references(values: Sequence[str] | None, field: str, names: RequestNames) -> Iterator[Cause]:
    yield from check.unique_items(values, REQUESTS_MAX, field, partial(_reference, names=names), str)


def _reference(value: str, field: str, *, names: RequestNames) -> Iterator[Cause]:
    parts = value.split("/")
    if len(parts) > 2:
        yield invalid(field, value, _NOT_A_REQUEST)
        return
    for part in parts:
        yield from check.label_name(part, field)
    if parts[0] not in names or (len(parts) == 2 and parts[1] not in names[parts[0]]):
        yield invalid(field, value, _NOT_A_REQUEST)


def _reservation_causes(claim: Object, status: Object, before: Object) -> Iterator[Cause]:
    reserved, field = status.get("reservedFor") or [], "status.reservedFor"
    if not reserved:
        return
    if status.get("allocation") is None:
        yield forbidden(field, "may not be specified when `allocated` is not set")
    elif claim["metadata"].get("deletionTimestamp"):
        reserved_before = before.get("reservedFor") or []
        if any(one not in reserved_before for one in reserved):
            message = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            yield forbidden(field, message)


def _consumer(consumer: Object, field: str) -> Iterator[Cause]:
    for name in ("resource", "name", "uid"):
        if not consumer.get(name):
            yield required(f"{field}.{name}")


def _allocation_causes(allocation: Object, names: RequestNames) -> Iterator[Cause]:
    devices, field = allocation.get("devices") or {}, "status.allocation.devices"
    yield from check.items(devices.get("results"), RESULTS_MAX, f"{field}.results", partial(_result, names=names))


def _result(result: Object, field: str, *, names: RequestNames) -> Iterator[Cause]:
    yield from _reference(result.get("request") or "", f"{field}.request", names=names)
    yield from _place_causes(result, field)


def _place_causes(device: Object, field: str) -> Iterator[Cause]:
    yield from check.driver(device.get("driver"), f"{field}.driver")
    yield from check.pool(device.get("pool"), f"{field}.pool")
    yield from check.label_name(device.get("device"), f"{field}.device")


def _device(device: Object, field: str, *, allocated: frozenset[DeviceId]) -> Iterator[Cause]:
    yield from _place_causes(device, field)
    if device_id(device) not in allocated:
        yield invalid(field, device_id(device), "must be an allocated device in the claim")
