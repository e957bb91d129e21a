"""The Helm chart, as real helm renders and installs it. Where there is no helm, `needs_helm` skips a test, visibly."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
import yaml

from gpuledger.api.kinds import NFD_COVERAGE
from support.paths import ROOT

CHART = ROOT / "charts" / "gpuledger"
COMMAND_S = 120.0
KUBE_VERSION = "1.34.0"
RELEASE, NAMESPACE, NAME = "lab", "gpu-system", "lab-gpuledger"
NATS, DATABASE = "nats://u:p@nats.example:4222", "postgresql://u:p@db.example/gpuledger"

ROLES_OF_PEOPLE = (
    *(f"d8:user-authz:gpu-control-plane:{who}" for who in ("user", "editor", "cluster-admin")),
    *(f"gpu-control-plane:aggregate-to-{role}" for role in ("view", "edit")),
    "gpu-control-plane:break-glass",
)

IMAGE: dict[str, Any] = {"image": {"repository": "registry.example/gpuledger"}}
WITH_SECRET: dict[str, Any] = {**IMAGE, "servers": {"existingSecret": "given"}}
WITH_URLS: dict[str, Any] = {**IMAGE, "servers": {"natsUrl": NATS, "databaseUrl": DATABASE}}
WITH_LOGINS: dict[str, Any] = {
    **IMAGE,
    "servers": {
        "existingSecret": "given",
        "nats": {"credentialsSecret": "login", "credentialsKey": "svc", "tlsSecret": "tls"},
        "operator": {"credentialsSecret": "operators-login"},
    },
}
WITHOUT_ADMISSION: dict[str, Any] = {
    **WITH_SECRET,
    "admission": {"enabled": False},
    "restrictedAccess": {"enabled": False},
}

Object = dict[str, Any]


def _helm() -> str | None:
    """The one that the development dependencies bring, or any on the path."""
    return shutil.which("helm", path=str(Path(sys.executable).parent)) or shutil.which("helm")


needs_helm = pytest.mark.skipif(
    _helm() is None,
    reason="helm is not there: the wheel that brings it is for Linux on x86_64 alone; put helm 3 on the path",
)


class HelmResult(NamedTuple):
    """How helm ended."""

    code: int
    out: str
    err: str


def helm(*arguments: str, values: Mapping[str, Any] | None = None, kubeconfig: Path | None = None) -> HelmResult:
    """Run helm, with nothing of the user's own settings."""
    program = _helm()
    assert program is not None
    given = () if values is None else ("--values", "-")
    server = () if kubeconfig is None else ("--kubeconfig", str(kubeconfig))
    with tempfile.TemporaryDirectory(prefix="gl-helm-") as home:
        ended = subprocess.run(
            (program, *arguments, *given, *server),
            input="" if values is None else yaml.safe_dump(dict(values)),
            env={"HOME": home, "PATH": ""},
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
    return HelmResult(ended.returncode, ended.stdout, ended.stderr)


class Manifests(NamedTuple):
    """What a chart makes of values."""

    objects: list[Object]

    def names(self, kind: str) -> set[str]:
        """The names of all objects of a kind."""
        return {one["metadata"]["name"] for one in self.objects if one["kind"] == kind}

    def kinds(self) -> set[str]:
        """The kinds there are."""
        return {one["kind"] for one in self.objects}

    def one(self, kind: str, name: str = NAME) -> Object:
        """The one object of that kind and name."""
        (found,) = (one for one in self.objects if (one["kind"], one["metadata"]["name"]) == (kind, name))
        return found

    def templates(self) -> Iterator[tuple[Object, Object]]:
        """Every object that makes pods, with its pod template."""
        for one in self.objects:
            if one["kind"] in {"Deployment", "Job", "StatefulSet"}:
                yield one, one["spec"]["template"]
            elif one["kind"] == "CronJob":
                yield one, one["spec"]["jobTemplate"]["spec"]["template"]


def template(values: Mapping[str, Any], release: str = RELEASE, *options: str) -> HelmResult:
    """What `helm template` makes of values; the same values are rendered once."""
    return _templated(orjson.dumps(values, option=orjson.OPT_SORT_KEYS), release, options)


@cache
def _templated(values: bytes, release: str, options: tuple[str, ...]) -> HelmResult:
    where = ("--namespace", NAMESPACE, "--kube-version", KUBE_VERSION)
    return helm("template", release, str(CHART), *where, *options, values=orjson.loads(values))


def render(values: Mapping[str, Any], release: str = RELEASE) -> Manifests:
    """The objects that the chart makes of values."""
    result = template(values, release)
    assert result.code == 0, result.err
    return manifests(result.out)


def manifests(text: str) -> Manifests:
    """The objects of rendered YAML."""
    return Manifests([one for one in yaml.load_all(text, Loader=yaml.CSafeLoader) if one])


def is_hook(obj: Object) -> bool:
    """Whether helm runs it at a moment of its own, and does not count it among the release's objects."""
    return "helm.sh/hook" in (obj["metadata"].get("annotations") or {})


def standby(made: Manifests) -> Object:
    """The CronJob that keeps a Job of the check of labels waiting."""
    (found,) = (one for one in made.objects if one["metadata"]["name"].startswith(f"{NFD_COVERAGE}-"))
    assert found["kind"] == "CronJob"
    return found
