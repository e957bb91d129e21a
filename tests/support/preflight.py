"""Pods before and after the injection of preflight checks, as files of `tests/golden/preflight` have them.

`NAME.in.yaml` has the pod and what is in the cluster beside it, `NAME.out.yaml` the pod with its checks;
`NAME.configuration.yaml` takes the place of the common configuration.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from gpuledger.edge.preflight.claims import device_classes, references
from gpuledger.edge.preflight.configuration import PreflightConfiguration, read_configuration
from gpuledger.edge.preflight.injection import Injection, PodFindings, inject
from gpuledger.local.kubeapi.patches import json_patch
from support.paths import ROOT

FOLDER = ROOT / "tests" / "golden" / "preflight"
AUTHORITY = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
HOME = "gpu-system"

Json = dict[str, Any]


class GoldenPod(NamedTuple):
    """A case: its name, the objects in the cluster (the namespace first), and the pod that is created."""

    name: str
    objects: tuple[Json, ...]
    pod: Json

    @property
    def namespace(self) -> Json:
        return self.objects[0]

    @property
    def configuration_file(self) -> Path:
        own = FOLDER / f"{self.name}.configuration.yaml"
        return own if own.exists() else FOLDER / "configuration.yaml"

    @property
    def configuration(self) -> PreflightConfiguration:
        return read_configuration(self.configuration_file.read_bytes(), self.configuration_file.name)

    @property
    def expected_file(self) -> Path:
        return FOLDER / f"{self.name}.out.yaml"

    @property
    def expected(self) -> Json:
        found: Json = yaml.safe_load(self.expected_file.read_text())
        return found

    @property
    def findings(self) -> PodFindings:
        """What the webhook would find out about the pod."""
        there = {(one["kind"], one["metadata"]["name"]): device_classes(one) for one in self.objects}
        classes = {one.claim: there.get((one.resource.kind, one.name)) for one in references(self.pod)}
        return PodFindings(self.namespace, classes, AUTHORITY)

    def injected(self, pod: Mapping[str, Any] | None = None) -> Injection:
        """What becomes of the pod."""
        if not self.configuration.covers(self.namespace["metadata"]["name"], HOME):
            return Injection(pod or self.pod, "not-covered")
        return inject(pod or self.pod, self.findings, self.configuration)


def golden_pods() -> Iterator[GoldenPod]:
    for file in sorted(FOLDER.glob("*.in.yaml")):
        *objects, pod = yaml.safe_load_all(file.read_text())
        if objects[0]["kind"] != "Namespace":
            raise ValueError(f"{file} begins with no Namespace")
        yield GoldenPod(file.name.removesuffix(".in.yaml"), tuple(objects), pod)


def patched(pod: Json, operations: Any) -> Json:
    """The pod after a JSON patch, as an API server carries it out."""
    return json_patch(pod, list(operations)) if operations else pod
