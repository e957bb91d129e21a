"""MachineConfigs as facts: their whole spec, with what of it is refused. Pure.

Nothing of a MachineConfig that is not fully understood may reach a node, so whatever is odd is a problem, and pools
that select it keep what they have until somebody mends it. That holds for one whose files no event can hold, too.
"""

from collections.abc import Mapping
from typing import Any, Final

from gpuledger.api.kinds import MACHINE_CONFIGS
from gpuledger.domain.machineconfig.canonical_files import content_hash
from gpuledger.domain.machineconfig.config_problems import refusals
from gpuledger.domain.machineconfig.rendered_object import FILE_STATES, UNIT_STATES
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.watchers.decide import Object, ObjectPart, WatchedKind
from gpuledger.edge.watchers.fields import FieldReader, chosen, name_of, shown, skipped, text, uid_of
from gpuledger.events.machine_config import (
    CONTENT_BYTES_MAX,
    FILES_MAX,
    MODE_DEFAULT,
    MODE_MAX,
    OWNER_DEFAULT,
    PACKED_LENGTH_MAX,
    PATH_LENGTH_MAX,
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    UNITS_MAX,
    MachineConfigDefined,
    MachineConfigGone,
    pack_content,
)
from gpuledger.events.node import LABELS_MAX
from gpuledger.events.payload import DATA_BYTES_MAX, NAME_LENGTH_MAX, truncated

_SPEC: Final = ("priority", "files", "systemd", "reboot")
_FILE: Final = ("path", "content", "mode", "owner", "state")
_UNIT: Final = ("name", "enabled", "state", "mask")

TOO_LARGE: Final = (
    f"its files are too large for the ledger, which holds {DATA_BYTES_MAX} bytes of them, compressed; "
    "divide it into several, or make them smaller"
)


def read(obj: Object) -> ObjectPart:
    """The content of a MachineConfig: its whole spec."""
    name, reader = name_of(obj), FieldReader()
    if name is None:
        return skipped(obj, "it has no name")
    metadata = mapping(obj, "metadata")
    spec, place = reader.nested(obj, "spec", _SPEC)
    content = {
        "uid": uid_of(obj),
        "generation": reader.count(metadata, "generation"),
        "labels": _labels(mapping(metadata, "labels"), reader),
        "priority": place.bounded(spec, "priority", PRIORITY_DEFAULT, PRIORITY_MAX),
        "files": [file for file in (_file(*one) for one in place.each(spec, "files", FILES_MAX)) if file],
        "units": _units(spec, place),
        **_reboot(spec, place),
    }
    definition = MachineConfigDefined.model_validate(content)
    for problem in refusals(definition.files, definition.units):
        reader.note(problem)
    return reader.part(obj, name, content | {"problems": list(reader.problems)}, _without_files)


def _labels(given: Mapping[str, Any], reader: FieldReader) -> dict[str, str]:
    """Its labels, by which pools select it."""
    found = chosen(given, lambda _key: True, LABELS_MAX, NAME_LENGTH_MAX)
    if len(found) < len(given):
        reader.note(f"{len(given) - len(found)} of its {len(given)} labels are too long or too many")
    return found


def _file(given: Mapping[str, Any], place: FieldReader) -> dict[str, Any] | None:
    _no_others(given, _FILE, place)
    path = text(given.get("path"), PATH_LENGTH_MAX)
    if path is None:
        place.reject("path", given.get("path"))
        return None
    content, packed = _content(given, place)
    return {
        "path": path,
        "content": packed,
        "hash": content_hash(content),
        "mode": place.bounded(given, "mode", MODE_DEFAULT, MODE_MAX),
        "owner": place.text(given, "owner") or OWNER_DEFAULT,
        "state": place.choice(given, "state", FILE_STATES) or FILE_STATES[0],
    }


def _content(given: Mapping[str, Any], place: FieldReader) -> tuple[str, str]:
    """A file's content, plain and packed; empty where no event can hold it."""
    content = given.get("content") or ""
    if not isinstance(content, str):
        place.reject("content", content)
        return "", ""
    if len(content.encode()) > CONTENT_BYTES_MAX:
        place.note_at("content", f"is larger than {CONTENT_BYTES_MAX} bytes; make it smaller")
        return "", ""
    packed = pack_content(content) if content else ""
    if len(packed) > PACKED_LENGTH_MAX:
        place.note_at("content", f"is larger than {PACKED_LENGTH_MAX} bytes even when compressed; make it smaller")
        return "", ""
    return content, packed


def _units(spec: Mapping[str, Any], place: FieldReader) -> list[dict[str, Any]]:
    systemd, where = place.nested(spec, "systemd", ("units",))
    found = [_unit(one, at) for one, at in where.each(systemd, "units", UNITS_MAX)]
    return [one for one in found if one]


def _unit(given: Mapping[str, Any], place: FieldReader) -> dict[str, Any] | None:
    _no_others(given, _UNIT, place)
    if (name := text(given.get("name"))) is None:
        place.reject("name", given.get("name"))
        return None
    return {
        "name": name,
        "enabled": place.boolean(given, "enabled"),
        "state": place.choice(given, "state", UNIT_STATES),
        "mask": place.boolean(given, "mask") is True,
    }


def _reboot(spec: Mapping[str, Any], place: FieldReader) -> dict[str, Any]:
    reboot, where = place.nested(spec, "reboot", ("required", "reason"))
    reason = reboot.get("reason")
    return {
        "reboot_required": where.boolean(reboot, "required") is True,
        "reboot_reason": truncated(reason) if isinstance(reason, str) else "",
    }


def _no_others(given: Mapping[str, Any], allowed: tuple[str, ...], place: FieldReader) -> None:
    """Note fields that are not known: what they would change is not clear."""
    for name in sorted(given.keys() - set(allowed)):
        place.note_at(shown(name), "is not known")


def _without_files(content: dict[str, Any]) -> str:
    content.update(files=[], problems=[TOO_LARGE, *content["problems"]])
    return "its files"


KIND: Final = WatchedKind(MACHINE_CONFIGS.plural, MACHINE_CONFIGS, MachineConfigDefined, MachineConfigGone, read)
