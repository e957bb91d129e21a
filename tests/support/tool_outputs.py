"""Reads outputs of others' tools with the parsers of the product; as a program it takes a folder of them.

A folder has one folder per tool. A parser either says what it found in a file or what is wrong with it, in words for
people; anything else is a defect of ours, and so is a value that no machine has.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import orjson
import yaml
from google.protobuf.json_format import ParseDict

from gpuledger.agent.errors import MonitoringError
from gpuledger.agent.hardware.kernel_log import xid_in
from gpuledger.agent.heartbeat import HeartbeatTracker, Samples, read_scrape
from gpuledger.agent.kubelet.allocations import allocations
from gpuledger.agent.kubelet.podresources_pb2 import ListPodResourcesResponse
from gpuledger.agent.plugin.cdi import CdiFolders
from gpuledger.api.kinds import RENDERED_MACHINE_CONFIGS
from gpuledger.api.mig_profile import MigProfile
from gpuledger.api.phases import DRIVER_STEP, PLUGIN_STEP, TOOLKIT_STEP
from gpuledger.domain.bootstrap.observations import verdict_when_failed
from gpuledger.domain.inventory.labels import CARD_MEMORY_MIB_MAX, hardware_facts
from gpuledger.domain.machineconfig.rendered_object import RenderedObjectError, read_object
from gpuledger.edge.watchers.decide import AnyKind, ObjectPart
from gpuledger.edge.watchers.resources import claims, machineconfigpools, machineconfigs, slices
from gpuledger.edge.watchers.resources.pod_progress import progress_of
from gpuledger.healthreports.healthevents_pb2 import HealthEvents
from gpuledger.healthreports.translate import ReportContext, translate

MEMORY_MIB_MIN: Final = 1024
"""No card that anybody puts into a cluster has less."""

WATCHED: Final[dict[str, AnyKind]] = {one.resource.kind: one for one in (machineconfigs.KIND, machineconfigpools.KIND)}

_LABEL: Final = re.compile(r'"?(nvidia\.com/[\w.+-]+)"?\s*[=:]\s*"?([^"\s,]*)"?')
_LEFT_OUT: Final = re.compile(r"^ *(?:- )?(?:\$ |\.\.\.).*$", re.MULTILINE)
_DESCRIBED: Final = re.compile(r"^ {2}([\w-]+):\n((?: {4,}.*\n?)+)", re.MULTILINE)
_STATE: Final = re.compile(r"^ +(Last )?State: +(\w+)\n +Reason: +(\w+)(?:\n +Exit Code: +(\d+))?", re.MULTILINE)
_WHOLE_XID: Final = re.compile(r"NVRM: Xid \([^)]*:[^)]*\): \d")
_TEMPLATE: Final = re.compile(r"\{\{.*?\}\}")


class Reading(NamedTuple):
    """What a parser made of a file: what it found, or what it refused, and what of that cannot be true."""

    file: str
    found: str
    defect: str = ""


def readings(folder: Path) -> Iterator[Reading]:
    """Every file of the folder that a parser of ours is for.

    A file that a parser cannot take ends in a defect with its error, not in an exception.
    """
    for (tool, pattern), read in PARSERS.items():
        for path in sorted((folder / tool).glob(pattern)):
            name = str(path.relative_to(folder))
            if path.name == "README.md":
                continue
            try:
                yield read(name, path.read_text())
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what this looks for
                yield Reading(name, "", f"{type(error).__name__}: {error}")


def _exporter(name: str, text: str) -> Reading:
    has_values = re.search(r"^DCGM_FI_\w+(?:\{.*\})? +-?[0-9.]", text, re.MULTILINE) is not None
    try:
        scraped = read_scrape(text)
    except MonitoringError as error:
        return Reading(name, f"refused: {error}", "it has samples of DCGM" if has_values else "")
    monitoring, now = HeartbeatTracker(), datetime.now(UTC)
    if isinstance(scraped, Samples):  # as of an earlier scrape, when they were others
        monitoring.on_scrape(scraped._replace(digest=b"earlier"), now, 0)
    event = monitoring.on_scrape(scraped, now, 0)
    kind = "advancing samples" if isinstance(scraped, Samples) and scraped.advancing else "samples"
    is_heartbeat = event is not None and event.fresh and has_values
    return Reading(name, f"a heartbeat by its {kind}", "" if is_heartbeat else "it is no heartbeat")


def _labels(name: str, text: str) -> Reading:
    facts = hardware_facts(dict(_LABEL.findall(text)))
    product, memory = facts.get("product", ""), facts.get("memory_mib")
    defects = [f"the product {product} is not a card's"] if "-MIG-" in product or product.endswith("-SHARED") else []
    if memory is not None and not MEMORY_MIB_MIN <= memory <= CARD_MEMORY_MIB_MAX:
        defects.append(f"no card has {memory} MiB")
    return Reading(name, ", ".join(f"{key} {value}" for key, value in facts.items()) or "nothing", "; ".join(defects))


def _cdi(name: str, text: str) -> Reading:
    documents = re.split(r"^---$", text, flags=re.MULTILINE)
    with TemporaryDirectory() as folder:
        for number, document in enumerate(filter(str.strip, documents)):
            (Path(folder) / f"{number}.yaml").write_text(_TEMPLATE.sub("", document))
        names = sorted(CdiFolders([Path(folder)]).names())
    return Reading(name, ", ".join(names), "" if names else "it names no device")


def _pod_resources(name: str, text: str) -> Reading:
    document = orjson.loads(_closed(text))
    pods = document.get("pod_resources") or document.get("podResources") or [document]
    found = allocations("w1", ParseDict({"podResources": pods}, ListPodResourcesResponse(), ignore_unknown_fields=True))
    held = [
        f"{one.pod}/{one.container} has {len(one.resources)} resources and {len(one.claims)} claims"
        for one in found.values()
    ]
    return Reading(name, ", ".join(held), "" if held else "no container has anything")


def _dra_objects(name: str, text: str) -> Reading:
    try:
        documents = list(yaml.safe_load_all(_LEFT_OUT.sub("", text)))
    except yaml.YAMLError:
        return Reading(name, "no YAML: its author cut it")
    parts = [_dra_part(number, one) for number, one in enumerate(chain.from_iterable(map(_objects, documents)))]
    devices = sum(len(orjson.loads(part.content).get("devices", ())) for part in parts if part.content)
    found = f"{len(parts)} objects with {devices} devices"
    problems = [problem for part in parts for problem in part.problems]
    return Reading(name, found, "; ".join(problems) if parts else "no object is found")


def _objects(document: Any) -> list[dict[str, Any]]:
    """The objects of a document, which may be a list of them, a part of one, or a list of devices."""
    if isinstance(document, list):
        return [{"spec": {"driver": "gpu.nvidia.com", "pool": {"name": "w1"}, "devices": document}}]
    return document["items"] if isinstance(document, dict) and "items" in document else [document] if document else []


def _dra_part(number: int, document: dict[str, Any]) -> ObjectPart:
    """What the watchers read in an object; one that its author cut gets what every object has."""
    document["metadata"] = {"name": f"cut-{number}", "namespace": "cut", **(document.get("metadata") or {})}
    if document.get("kind", "ResourceClaim" if "status" in document else "ResourceSlice") == "ResourceClaim":
        return claims.read(document)
    spec = document.setdefault("spec", {})
    spec.setdefault("driver", "gpu.nvidia.com")
    spec.setdefault("pool", {"name": "w1", "generation": 1, "resourceSliceCount": 1})
    spec["devices"] = [
        {"name": f"cut-{number}", **device} if isinstance(device, dict) else device
        for number, device in enumerate(spec.get("devices") or ())
    ]
    return slices.read(document)


def _profiles(name: str, text: str) -> Reading:
    names = sorted({*re.findall(r"\bMIG ((?:\d+c\.)?\d+g\.\S+)", text)})
    unknown = [one for one in names if (profile := MigProfile.parse(one)) is None or str(profile) != one]
    return Reading(name, ", ".join(names) or "no profile", f"no profiles: {', '.join(unknown)}" if unknown else "")


def _validator_releases(name: str, text: str) -> Reading:
    """The containers of the validator, a release on each line; the last two are the plugin's and one that sleeps."""
    releases = [line.partition(":")[2].split() for line in text.splitlines() if line.startswith("v")]
    steps = {step: verdict_when_failed(step).value for release in releases for step in release}
    defects = [f"no {step}" for step in (DRIVER_STEP, TOOLKIT_STEP, PLUGIN_STEP) if step not in steps]
    if any(release[-2:-1] != [PLUGIN_STEP] for release in releases):
        defects.append(f"{PLUGIN_STEP} is not the last step")
    return Reading(name, ", ".join(f"{step} {verdict}" for step, verdict in steps.items()), "; ".join(defects))


def _validator_pod(name: str, text: str) -> Reading:
    """A validator's pod as `kubectl describe` prints it, as far as its author has kept it."""
    containers = [(step, block) for step, block in _DESCRIBED.findall(text) if " State: " in block]
    statuses = [{"name": step, **_states(block)} for step, block in containers]
    progress = progress_of(
        {
            "spec": {"initContainers": [{"name": step} for step, _ in containers]},
            "status": {"initContainerStatuses": statuses},
        }
    )
    end = "fails" if progress.failing else "waits"
    found = "every step is done" if progress.step is None else f"{progress.step} {end}"
    return Reading(name, found, "" if containers else "no container is found")


def _states(block: str) -> dict[str, Any]:
    """`state` and `lastState` of a container that is described."""
    states: dict[str, Any] = {}
    for title, state, reason, code in _STATE.findall(block):
        ended = {"exitCode": int(code)} if code else {}
        states["lastState" if title == "Last " else "state"] = {state.lower(): {"reason": reason, **ended}}
    return states


def _xids(name: str, text: str) -> Reading:
    """Lines of the kernel's log, with whatever a tool has put before the messages."""
    messages = [line[line.index("NVRM: ") :] for line in text.splitlines() if "NVRM: Xid (" in line]
    xids = {message: xid_in(message) for message in messages}
    numbers = sorted({xid.number for xid in xids.values() if xid is not None})
    unread = [message for message, xid in xids.items() if xid is None and _WHOLE_XID.match(message)]
    return Reading(name, ", ".join(map(str, numbers)) or "no XID", f"not read: {unread[0]}" if unread else "")


def _machine_configs(name: str, text: str) -> Reading:
    """Manifests of MCO Lite: every MachineConfig and pool is understood whole, and what they have is rendered."""
    documents = [one for one in yaml.safe_load_all(text) if one]
    parts = [(one, WATCHED[one["kind"]].read(one)) for one in documents if one["kind"] in WATCHED]
    problems = [problem for _, part in parts for problem in part.problems]
    found = [f"{one['kind']} {part.subject}" for one, part in parts]
    rendered = (one for one in documents if one["kind"] == RENDERED_MACHINE_CONFIGS.kind)
    found += [f"{one['kind']} {one['metadata']['name']}: {_hash_of(one)}" for one in rendered]
    return Reading(name, ", ".join(found), "; ".join(problems) or ("" if found else "no object is found"))


def _hash_of(rendered: dict[str, Any]) -> str:
    """Whether the content has the hash that the object says; those of documentation are made up."""
    try:
        return read_object(rendered).config_hash
    except RenderedObjectError:
        return "its hash is made up"


def _health_events(name: str, text: str) -> Reading:
    """Health events as NVSentinel logs or exports them; the documents around them differ."""
    try:
        documents = [orjson.loads(line) for line in (text.splitlines() if name.endswith(".jsonl") else [text])]
    except orjson.JSONDecodeError:
        return Reading(name, "no JSON: its author cut it")
    request = _health_request(documents)
    node = request.events[0].nodeName if request.events else "w1"
    reports = [report.data for report in translate(request, ReportContext(node, (), None), datetime.now(UTC))]
    found = [
        f"{one.check} {one.action} {'+'.join(one.codes)} of {' '.join(f'{e.type} {e.value}' for e in one.entities)}"
        for one in reports
    ]
    return Reading(name, ", ".join(found), "" if found else "no event is found")


def health_requests(folder: Path) -> dict[str, HealthEvents]:
    """The health events of each file that has any, as a monitor sends them, by the file."""
    found = {}
    for path in sorted((folder / "nvsentinel").glob("*.json*")):
        text = path.read_text()
        try:
            documents = [orjson.loads(line) for line in (text.splitlines() if path.suffix == ".jsonl" else [text])]
        except orjson.JSONDecodeError:
            continue
        if (request := _health_request(documents)).events:
            found[path.name] = request
    return found


def _health_request(documents: Iterable[Any]) -> HealthEvents:
    events = [_health_event(one) for one in chain.from_iterable(map(_reported, documents))]
    return ParseDict({"events": events}, HealthEvents(), ignore_unknown_fields=True)


def _reported(document: Any) -> Iterator[dict[str, Any]]:
    """The health events in a document, wherever they are."""
    if isinstance(document, dict) and "checkName" in document:
        yield document
    elif isinstance(document, dict | list):
        for part in document.values() if isinstance(document, dict) else document:
            yield from _reported(part)


def _health_event(document: dict[str, Any]) -> dict[str, Any]:
    """A health event as protobuf spells it: its version is a number there, and its time a text."""
    at = document["generatedTimestamp"]
    text = datetime.fromtimestamp(at["seconds"], UTC).isoformat() if isinstance(at, dict) else at
    return {**document, "version": 1, "generatedTimestamp": text}


def _closed(text: str) -> str:
    """JSON whose end its author cut off, with the brackets that are missing there."""
    still_open: list[str] = []
    for bracket in re.findall(r'[\[{\]}](?=(?:[^"\n]*"[^"\n]*")*[^"\n]*$)', text, re.MULTILINE):
        if bracket in "[{":
            still_open.append("]" if bracket == "[" else "}")
        else:
            still_open.pop()
    return text + "".join(reversed(still_open))


PARSERS: Final[dict[tuple[str, str], Callable[[str, str], Reading]]] = {
    ("dcgm-exporter", "*.prom"): _exporter,
    ("node-labels", "*"): _labels,
    ("xid", "*.log"): _xids,
    ("gpu-operator", "validator-init-containers-by-version.txt"): _validator_releases,
    ("gpu-operator", "validator-*.describe.txt"): _validator_pod,
    ("cdi", "*.yaml"): _cdi,
    ("kubelet", "podresources*.json"): _pod_resources,
    ("dra", "*.yaml"): _dra_objects,
    ("nvidia-smi", "*-L.txt"): _profiles,
    ("nvidia-smi", "mig-*.txt"): _profiles,
    ("mco-lite", "sample-*.yaml"): _machine_configs,
    ("mco-lite", "scenario-*-manifest.yaml"): _machine_configs,
    ("nvsentinel", "*.json"): _health_events,
    ("nvsentinel", "*.jsonl"): _health_events,
}
"""The parsers, by folder and files. Of other tools the product reads no text: it asks NVML, or watches objects."""


def main(folder: Path) -> int:
    """Print what was found, and count the defects."""
    found = list(readings(folder))
    for one in found:
        print(f"{'WRONG' if one.defect else 'ok':6}{one.file}: {one.defect or one.found}")
    defects = sum(bool(one.defect) for one in found)
    print(f"{len(found)} files read, {defects} wrong")
    return 1 if defects or not found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
