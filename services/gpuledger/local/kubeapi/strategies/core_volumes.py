"""Whether the volumes of a pod hold up: their names, and that each has one source that says what it needs."""

from collections.abc import Callable, Iterator

from gpuledger.edge.kube.schema.causes import Cause, Object, duplicate, forbidden, invalid, required
from gpuledger.edge.kube.schema.object_names import dns_label_problem

MODE_MAX = 0o777
_NEEDS = {
    "hostPath": ("path",),
    "secret": ("secretName",),
    "configMap": ("name",),
    "persistentVolumeClaim": ("claimName",),
    "nfs": ("server", "path"),
    "csi": ("driver",),
}


def volume_causes(volumes: list[Object], field: str) -> Iterator[Cause]:
    """What is wrong with the volumes that stand at `field`."""
    return named_causes(volumes, field, _source_causes)


def named_causes(items: list[Object], field: str, causes: Callable[[Object, str], Iterator[Cause]]) -> Iterator[Cause]:
    """What is wrong with items that each have a DNS label of their own as name, and with the rest of each."""
    seen: set[str] = set()
    for index, item in enumerate(items):
        name, path = item.get("name") or "", f"{field}[{index}]"
        if not name:
            yield required(f"{path}.name")
        elif problem := dns_label_problem(name):
            yield invalid(f"{path}.name", name, problem)
        elif name in seen:
            yield duplicate(f"{path}.name", name)
        seen.add(name)
        yield from causes(item, path)


def _source_causes(volume: Object, field: str) -> Iterator[Cause]:
    sources = [name for name in volume if name != "name" and volume[name] is not None]
    if not sources:
        yield required(field, "must specify a volume type")
    for extra in sources[1:]:
        yield forbidden(f"{field}.{extra}", "may not specify more than 1 volume type")
    for source in sources:
        missing = (need for need in _NEEDS.get(source, ()) if not volume[source].get(need))
        yield from (required(f"{field}.{source}.{need}") for need in missing)
        mode = volume[source].get("defaultMode")
        if mode is not None and not 0 <= mode <= MODE_MAX:
            yield invalid(f"{field}.{source}.defaultMode", mode, "must be a number between 0 and 0777 (octal)")
