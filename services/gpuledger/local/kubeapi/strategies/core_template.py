"""What Kubernetes fills into the spec of a pod, be it a pod's own or a workload's template.

The spec is changed in place. Nothing here depends on who asks or on what else there is in the cluster.
"""

from collections.abc import Iterator

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.strategies.core_quantities import canonical, write_canonically
from gpuledger.local.kubeapi.strategies.core_shared import at, fill

FILE_MODE = 0o644
TOKEN_LIFETIME_S = 3600
GRACE_PERIOD_S = 30
CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")
_SPEC = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": GRACE_PERIOD_S,
}
_CONTAINER = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}


def default_pod_spec(spec: Object) -> None:
    """Fill in the defaults that templates and pods share."""
    fill(spec, _SPEC)
    fill(spec, {"securityContext": {}})
    _mirror_service_account(spec)
    for container in containers(spec):
        _default_container(container)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    write_canonically(quantity_maps(spec))


def default_pod(spec: Object) -> None:
    """Fill in the defaults of a pod's own spec: those of a template, and requests where only limits are given."""
    default_pod_spec(spec)
    fill(spec, {"enableServiceLinks": True})
    if spec.get("hostNetwork"):
        _use_host_ports(spec)
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        limits = at(container, "resources", "limits")
        if limits:
            requests = container["resources"].get("requests") or {}
            container["resources"]["requests"] = limits | requests


def containers(spec: Object) -> Iterator[Object]:
    """Every container of a pod, init and ephemeral ones included."""
    for name in CONTAINER_LISTS:
        yield from spec.get(name) or ()


def quantity_maps(spec: Object) -> Iterator[Object]:
    """The maps of a pod's spec whose values are quantities."""
    yield spec.get("overhead") or {}
    for holder in (spec, *containers(spec)):
        resources = holder.get("resources") or {}
        yield resources.get("limits") or {}
        yield resources.get("requests") or {}
    for volume in spec.get("volumes") or ():
        resources = at(volume, "ephemeral", "volumeClaimTemplate", "spec", "resources")
        yield resources.get("limits") or {}
        yield resources.get("requests") or {}


def image_pull_policy(image: str) -> str:
    """`Always` for an image that moves (no tag, or `latest`), else `IfNotPresent`."""
    without_digest, at_sign, _ = image.partition("@")
    tag = without_digest.rpartition("/")[2].partition(":")[2]
    moves = bool(image) and (tag == "latest" or (not tag and not at_sign))
    return "Always" if moves else "IfNotPresent"


def _use_host_ports(spec: Object) -> None:
    ports = (port for container in containers(spec) for port in container.get("ports") or ())
    for port in ports:
        port["hostPort"] = port.get("hostPort") or port.get("containerPort")


def _mirror_service_account(spec: Object) -> None:
    name = spec.get("serviceAccountName") or spec.get("serviceAccount")
    for field in ("serviceAccountName", "serviceAccount"):
        spec.pop(field, None)
        if name:
            spec[field] = name


def _default_container(container: Object) -> None:
    fill(container, _CONTAINER)
    fill(container, {"imagePullPolicy": image_pull_policy(container.get("image") or "")})
    fill(container, {"resources": {}})
    for port in container.get("ports") or ():
        fill(port, {"protocol": "TCP"})
    for variable in container.get("env") or ():
        _default_reference(variable.get("valueFrom") or {})
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe := container.get(name):
            for field, usual in _PROBE.items():
                probe[field] = probe.get(field) or usual
            _default_handler(probe)
    for handler in (container.get("lifecycle") or {}).values():
        _default_handler(handler)


def _default_handler(handler: object) -> None:
    if not isinstance(handler, dict):
        return
    if "httpGet" in handler:
        fill(handler["httpGet"], {"path": "/", "scheme": "HTTP"})
    if "grpc" in handler:
        fill(handler["grpc"], {"service": ""})


def _default_reference(source: Object) -> None:
    if source.get("fieldRef"):
        fill(source["fieldRef"], {"apiVersion": "v1"})
    if source.get("resourceFieldRef"):
        source["resourceFieldRef"]["divisor"] = canonical(source["resourceFieldRef"].get("divisor"))


def _default_volume(volume: Object) -> None:
    if not volume.keys() - {"name"}:
        volume["emptyDir"] = {}
    for kind in ("secret", "configMap", "downwardAPI", "projected"):
        if isinstance(volume.get(kind), dict):
            fill(volume[kind], {"defaultMode": FILE_MODE})
    if isinstance(volume.get("hostPath"), dict):
        fill(volume["hostPath"], {"type": ""})
    for item in at(volume, "downwardAPI").get("items") or ():
        _default_reference(item)
    for source in at(volume, "projected").get("sources") or ():
        _default_projection(source)
    _default_claim(at(volume, "ephemeral", "volumeClaimTemplate", "spec"))


def _default_projection(source: Object) -> None:
    if isinstance(source.get("serviceAccountToken"), dict):
        fill(source["serviceAccountToken"], {"expirationSeconds": TOKEN_LIFETIME_S})
    for item in at(source, "downwardAPI").get("items") or ():
        _default_reference(item)


def _default_claim(spec: Object) -> None:
    if spec:
        fill(spec, {"volumeMode": "Filesystem"})
