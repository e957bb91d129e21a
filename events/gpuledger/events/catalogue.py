"""The product's event types, together, and their JSON Schemas.

Importing this module fills the registry. Run as a program it writes the schemas into a folder; a test fails when a
committed one is stale, or changed incompatibly within a version.
"""

import json
import sys
from pathlib import Path
from typing import Any

from gpuledger.events import (
    allocation,
    claim,
    device,
    health,
    history,
    ledger,
    machine_config,
    maintenance,
    module,
    namespace,
    node,
    node_devices,
    node_sharing,
    pod,
    pool,
    preflight,
    quarantine,
    remediation,
    rule,
    runtime,
    settings,
    shares,
    sharing,
    slice,  # noqa: A004 - the aggregate's name
    slot,
    source,
    workload,
)
from gpuledger.events.envelope import dataschema_of
from gpuledger.events.payload import Payload
from gpuledger.events.registry import PREFIX, registry

__all__ = [
    "allocation",
    "claim",
    "device",
    "health",
    "history",
    "ledger",
    "machine_config",
    "maintenance",
    "module",
    "namespace",
    "node",
    "node_devices",
    "node_sharing",
    "pod",
    "pool",
    "preflight",
    "quarantine",
    "registry",
    "remediation",
    "rule",
    "runtime",
    "settings",
    "shares",
    "sharing",
    "slice",
    "slot",
    "source",
    "workload",
]

registry.check()


def schema_name(model: type[Payload]) -> str:
    """The file name of a type's schema, such as `device.inserted.v1.json`."""
    return f"{model.TYPE.removeprefix(PREFIX)}.json"


def schema_of(model: type[Payload]) -> dict[str, Any]:
    """The JSON Schema of a type's data."""
    rule = model.PUBLISH_RULE
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": dataschema_of(model.TYPE),
        "x-publishers": list(rule.publishers),
        "x-authority": rule.authority.value,
        "x-drop-class": rule.drop_class.name.lower(),
        **model.model_json_schema(mode="validation"),
    }


def render_schema(model: type[Payload]) -> str:
    """The schema as it is committed."""
    return json.dumps(schema_of(model), indent=2, sort_keys=True) + "\n"


def write_schemas(folder: Path) -> None:
    """Write every type's schema into `folder`; schemas of older versions in it remain."""
    folder.mkdir(parents=True, exist_ok=True)
    for model in registry.models():
        (folder / schema_name(model)).write_text(render_schema(model))


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1]))
