"""The configuration of preflight checks, as the Helm values have it: which checks which pods get. Pure.

It is read from the file `preflight.yaml`. Names are those of NVSentinel's design where that has them. A configuration
is whole and valid, or it is not used at all.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from gpuledger.api.preflight import GANG_CHECKS, NCCL_CHECKS, CheckName, NotRun
from gpuledger.domain.preflight.gangs import GangDiscovery, GangMethod
from gpuledger.domain.preflight.setting_values import (
    BANDWIDTH_MAX_GBPS,
    TIMEOUT_MAX_S,
    is_address,
    is_file_name,
    timeout_s,
)
from gpuledger.domain.quantities import parse_quantity
from gpuledger.edge.preflight.errors import ConfigurationError
from gpuledger.events.preflight import CHECKS_MAX

CONFIGURATION_BYTES_MAX: Final = 1024 * 1024
"""A ConfigMap cannot hold more."""

PROBLEMS_SHOWN_MAX: Final = 10
NAMES_MAX: Final = 256
PATTERNS_MAX: Final = 64

SYSTEM_NAMESPACES: Final = ("kube-node-lease", "kube-public", "kube-system")
"""Namespaces that never get checks, whatever is configured; and neither does the product's own."""

OWN_CHECKS: Final = frozenset(CheckName)

CLASS_RESOURCE_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
"""Before a DeviceClass's name: the extended resource by which a pod may request its devices without a claim."""

CHECK_NAME_PATTERN: Final = r"^[a-z0-9]([a-z0-9-]{0,51}[a-z0-9])?$"
"""A container's name has 63 characters at most, of which the prefix takes ten."""


def _checked_duration(text: str) -> str:
    if timeout_s(text) is None:
        raise ValueError(f"{text!r} is no duration such as 300s or 10m, above zero and up to {TIMEOUT_MAX_S / 3600:g}h")
    return text


def _checked_address(text: str) -> str:
    if text and not is_address(text):
        raise ValueError(f"{text!r} is no HOST:PORT")
    return text


def _checked_files(files: Mapping[str, str]) -> Mapping[str, str]:
    if wrong := sorted(name for name in files.values() if not is_file_name(name)):
        raise ValueError(f"{', '.join(wrong)}: it is the name of a file in `directory`, without folders")
    return files


def _checked_quantity(value: str | int | float) -> str:
    if parse_quantity(value).nanos < 0:
        raise ValueError("a quantity is not negative")
    return str(value)


Duration = Annotated[str, AfterValidator(_checked_duration)]
Address = Annotated[str, AfterValidator(_checked_address)]
"""HOST:PORT; empty: there is none."""

Amount = Annotated[str | int | float, AfterValidator(_checked_quantity)]
Bandwidth = Annotated[float, Field(ge=0, le=BANDWIDTH_MAX_GBPS)]
Text = Annotated[str, Field(min_length=1, max_length=1024)]
Word = Annotated[str, Field(min_length=1)]
"""Of a command, which may be a whole program: only the file as a whole is bounded."""

ResourcePattern = Annotated[str, Field(pattern=r"^[A-Za-z0-9./_*?-]{1,316}$")]
ClassName = Annotated[str, Field(pattern=r"^[A-Za-z0-9./_-]{1,253}$")]
Names = Annotated[tuple[Text, ...], Field(max_length=NAMES_MAX)]
Patterns = Annotated[tuple[Text, ...], Field(max_length=PATTERNS_MAX)]
ComputeName = Annotated[str, Field(pattern=r"^(cpu|memory)$")]
Strategy = Literal["EXECUTE_REMEDIATION", "STORE_ONLY", "STORE_AND_ANALYSE"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class EnvVariable(_Part):
    """A variable of a check's environment."""

    name: Annotated[str, Field(pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]*$", max_length=256)]
    value: str = ""


class Resources(_Part):
    """What a check requests beside devices: `cpu` and `memory`. The pod's own amounts bound the requests."""

    requests: Mapping[ComputeName, Amount] = {"cpu": "100m", "memory": "128Mi"}
    limits: Mapping[ComputeName, Amount] = {}


class Check(_Part):
    """A check that pods get.

    `gang`: all pods of a gang go through it together. `network`: it gets the pod's network devices and NCCL's
    variables; `requires_network`: a pod without such devices is spared it. Otherwise the name of the check decides.
    """

    name: Annotated[str, Field(pattern=CHECK_NAME_PATTERN)]
    image: Text
    command: Annotated[tuple[Word, ...], Field(max_length=64)] = ()
    args: Annotated[tuple[str, ...], Field(max_length=64)] = ()
    env: Annotated[tuple[EnvVariable, ...], Field(max_length=NAMES_MAX)] = ()
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    resources: Resources = Resources()
    processing_strategy: Strategy | None = None
    not_run: NotRun | None = None
    gang: bool | None = None
    network: bool | None = None
    requires_network: bool | None = None

    @property
    def is_own(self) -> bool:
        """Whether it is one that gpuledger brings."""
        return self.name in OWN_CHECKS

    @property
    def is_for_gangs(self) -> bool:
        """Whether pods go through it with their gang, and only then."""
        return self.name in GANG_CHECKS if self.gang is None else self.gang

    @property
    def has_network(self) -> bool:
        """Whether it gets network devices; a check of somebody else gets all devices unless it says otherwise."""
        return self.name in NCCL_CHECKS or not self.is_own if self.network is None else self.network

    @property
    def needs_network(self) -> bool:
        """Whether it is left out of pods without network devices."""
        return self.name in NCCL_CHECKS if self.requires_network is None else self.requires_network


class Dcgm(_Part):
    """DCGM's host engine, as HOST:PORT, and the level of its diagnostic."""

    hostengine_addr: Address = ""
    diag_level: Literal[1, 2] = 1


class Nccl(_Part):
    """Bandwidths that checks demand, in GB/s (10^9 bytes)."""

    loopback_threshold_gbps: Annotated[Bandwidth, Field(alias="loopbackThresholdGBps")] = 10.0
    allreduce_threshold_gbps: Annotated[Bandwidth, Field(alias="allreduceThresholdGBps")] = 5.0


class BandwidthCheck(_Part):
    """What the check `bandwidth` demands, in GB/s."""

    threshold_gbps: Annotated[Bandwidth, Field(alias="thresholdGBps")] = 5.0


class GangLabels(_Part):
    """The labels of pods with their gang's id and size, for the method `labels`."""

    gang_id_label: Text | None = None
    gang_size_label: Text | None = None


class Discovery(_Part):
    """How gangs are found: by one method, or by several, of which the first that finds one holds."""

    method: GangMethod | Annotated[tuple[GangMethod, ...], Field(min_length=1, max_length=4)] = GangMethod.WORKLOAD_REF
    labels: GangLabels = GangLabels()

    @model_validator(mode="after")
    def _has_labels(self) -> Self:
        if GangMethod.LABELS in self.methods and self.labels.gang_id_label is None:
            raise ValueError("the method labels needs labels.gangIdLabel")
        return self

    @property
    def methods(self) -> tuple[GangMethod, ...]:
        """The methods in their order."""
        return (self.method,) if isinstance(self.method, GangMethod) else self.method


class Detection(_Part):
    """Devices by extended resources, whose names may be patterns such as `nvidia.com/mig-*`, and by DeviceClasses."""

    resource_names: Annotated[tuple[ResourcePattern, ...], Field(max_length=NAMES_MAX)] = ()
    device_classes: Annotated[tuple[ClassName, ...], Field(max_length=NAMES_MAX)] = ()

    @property
    def resources(self) -> tuple[str, ...]:
        """All extended resources: since Kubernetes 1.34 a pod may request each DeviceClass as one."""
        return (*self.resource_names, *(f"{CLASS_RESOURCE_PREFIX}{one}" for one in self.device_classes))


class Topology(_Part):
    """NCCL's topology files in a check's image, by instance type. `instance_type_label` is a label of nodes."""

    instance_type_label: Text = "node.kubernetes.io/instance-type"
    instance_type_mapping: Annotated[Mapping[Text, Text], AfterValidator(_checked_files)] = {}
    enable_fallback: bool = True
    directory: str = ""


class Connector(_Part):
    """Where checks report: over the node's socket, or over TCP to the health gateway.

    `socket_directory` is a folder of the nodes that holds the socket and nothing else. `target` is HOST:PORT of the
    gateway, `authority_file` a file of ours with the authority that its certificate is signed by (none: those of the
    image). `auto` takes the socket, and TCP where the namespace's Pod Security refuses folders of the node.
    """

    mode: Literal["auto", "socket", "tcp"] = "auto"
    socket_directory: Annotated[str, Field(pattern=r"^/.+")] = "/var/run/gpuledger"
    target: Address = ""
    audience: Text = "gpuledger-health"
    authority_file: str = ""

    @model_validator(mode="after")
    def _has_target(self) -> Self:
        if self.mode == "tcp" and not self.target:
            raise ValueError("the mode tcp needs a target, HOST:PORT of the health gateway")
        return self


class Webhook(_Part):
    """What an API server does with pods while no webhook answers."""

    failure_policy: Literal["Fail", "Ignore"] = "Fail"


class PreflightConfiguration(_Part):
    """Which checks which pods get, and with which settings. One that is not `enabled` gives none to any."""

    enabled: bool = True
    checks: Annotated[tuple[Check, ...], Field(max_length=CHECKS_MAX)] = ()
    dcgm: Dcgm = Dcgm()
    nccl: Nccl = Nccl()
    bandwidth: BandwidthCheck = BandwidthCheck()
    check_timeout: Duration = "300s"
    gang_timeout: Duration = "600s"
    gang_discovery: Discovery = Discovery()
    gpu_detection: Detection = Detection(resource_names=("nvidia.com/gpu",))
    network_detection: Detection = Detection(resource_names=("nvidia.com/mlnxnics",))
    nccl_env_patterns: Patterns = ("NCCL_*", "UCX_*", "OMPI_*")
    nccl_topology: Topology = Topology()
    namespaces: Names = ()
    exclude_namespaces: Names = ()
    processing_strategy: Strategy = "EXECUTE_REMEDIATION"
    not_run: NotRun = NotRun.CONTINUE
    connector: Connector = Connector()
    webhook: Webhook = Webhook()

    @model_validator(mode="after")
    def _has_each_check_once(self) -> Self:
        names = [check.name for check in self.checks]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"checks has {', '.join(repeated)} more than once; a check runs once")
        return self

    @property
    def discovery(self) -> GangDiscovery:
        """How gangs are found, for who looks for them."""
        labels = self.gang_discovery.labels
        return GangDiscovery(self.gang_discovery.methods, labels.gang_id_label, labels.gang_size_label)

    @property
    def gang_timeout_s(self) -> float:
        """How long a gang may take to form."""
        found = timeout_s(self.gang_timeout)
        assert found is not None, "it was validated"
        return found

    @property
    def has_device_classes(self) -> bool:
        """Whether claims are of interest."""
        return bool(self.gpu_detection.device_classes or self.network_detection.device_classes)

    def excluded(self, home: str) -> tuple[str, ...]:
        """The namespaces without checks; `home` is the product's own."""
        return tuple(sorted({*self.exclude_namespaces, *SYSTEM_NAMESPACES, home}))

    def covers(self, namespace: str, home: str) -> bool:
        """Whether pods of a namespace get checks."""
        return self.enabled and namespace in self.namespaces and namespace not in self.excluded(home)


def read_configuration(text: bytes, file: str) -> PreflightConfiguration:
    """The configuration in a text; `file` is its name in messages.

    Raises:
        ConfigurationError: it is too large, no YAML, or something is wrong with it.
    """
    if len(text) > CONFIGURATION_BYTES_MAX:
        raise ConfigurationError(f"{file} has {len(text):,} bytes, and may have {CONFIGURATION_BYTES_MAX:,}.")
    try:
        found = yaml.safe_load(text)
        return PreflightConfiguration.model_validate({} if found is None else found)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} is no YAML: {' '.join(str(error).split())}. Correct it.") from error
    except ValidationError as error:
        problems = [_worded(one) for one in error.errors(include_url=False, include_input=False)]
        shown, more = problems[:PROBLEMS_SHOWN_MAX], len(problems) - PROBLEMS_SHOWN_MAX
        rest = f" And {more} more." if more > 0 else ""
        raise ConfigurationError(f"{file} cannot be used: {' '.join(shown)}{rest} Correct it.") from error


def _worded(problem: ErrorDetails) -> str:
    """A problem with the path of its field: such as `checks[0].image: Field required`."""
    path = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in _named(problem["loc"]))
    return f"{path.removeprefix('.') or 'the document'}: {problem['msg'].removeprefix('Value error, ')}."


def _named(loc: tuple[Any, ...]) -> tuple[Any, ...]:
    """Without the steps into alternatives of a type, which are no fields of the file."""
    return tuple(one for one in loc if isinstance(one, int) or ("[" not in one and one not in _TYPES))


_TYPES: Final = frozenset({"str", "int", "float"})
