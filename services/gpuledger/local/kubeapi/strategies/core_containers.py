"""Whether the containers of a pod hold up: names, images, ports, variables, mounts, probes, resources."""

from collections.abc import Iterator

from gpuledger.edge.kube.schema.causes import Cause, Object, duplicate, forbidden, invalid, required
from gpuledger.edge.kube.schema.object_names import dns_label_problem
from gpuledger.local.kubeapi.strategies.core_resources import requirement_causes
from gpuledger.local.kubeapi.strategies.core_shared import at_least, one_of

PULL_POLICIES = ("Always", "IfNotPresent", "Never")
MESSAGE_POLICIES = ("FallbackToLogsOnError", "File")
PROTOCOLS = ("TCP", "UDP", "SCTP")
PORT_MAX = 65535
PORT_NAME_MAX = 15
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")


def containers_causes(spec: Object, field: str, volumes: frozenset[str], claims: frozenset[str]) -> Iterator[Cause]:
    """What is wrong with the containers of a spec that stands at `field`."""
    if not spec.get("containers"):
        yield required(f"{field}.containers")
    seen: set[str] = set()
    for part in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(part) or ()):
            path, name = f"{field}.{part}[{index}]", container.get("name") or ""
            if name and name in seen:
                yield duplicate(f"{path}.name", name)
            seen.add(name)
            yield from _container_causes(container, path, volumes, claims)
            yield from _restart_causes(container, path, is_init=part == "initContainers")
    yield from _host_port_causes(spec, field)


def _container_causes(
    container: Object, field: str, volumes: frozenset[str], claims: frozenset[str]
) -> Iterator[Cause]:
    yield from _identity_causes(container, field)
    yield from one_of(container.get("imagePullPolicy"), PULL_POLICIES, f"{field}.imagePullPolicy")
    yield from one_of(container.get("terminationMessagePolicy"), MESSAGE_POLICIES, f"{field}.terminationMessagePolicy")
    yield from _port_causes(container.get("ports") or [], f"{field}.ports")
    yield from _variable_causes(container.get("env") or [], f"{field}.env")
    yield from _mount_causes(container.get("volumeMounts") or [], f"{field}.volumeMounts", volumes)
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(name) is not None:
            yield from _probe_causes(container[name], f"{field}.{name}")
    yield from requirement_causes(container.get("resources") or {}, f"{field}.resources", claims)


def _identity_causes(container: Object, field: str) -> Iterator[Cause]:
    name, image = container.get("name") or "", container.get("image") or ""
    if not name:
        yield required(f"{field}.name")
    elif problem := dns_label_problem(name):
        yield invalid(f"{field}.name", name, problem)
    if not image:
        yield required(f"{field}.image")
    elif image != image.strip():
        yield invalid(f"{field}.image", image, "must not have leading or trailing whitespace")


def _restart_causes(container: Object, field: str, *, is_init: bool) -> Iterator[Cause]:
    policy = container.get("restartPolicy")
    if policy is not None:
        yield from one_of(policy, ("Always", "OnFailure", "Never"), f"{field}.restartPolicy")
    if is_init and policy != "Always":
        for name in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"):
            if container.get(name) is not None:
                yield forbidden(f"{field}.{name}", "may not be set for init containers without restartPolicy=Always")


def _port_causes(ports: list[Object], field: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        path, name = f"{field}[{index}]", port.get("name") or ""
        if name and (problem := _port_name_problem(name)):
            yield invalid(f"{path}.name", name, problem)
        elif name and name in seen:
            yield duplicate(f"{path}.name", name)
        seen.add(name)
        if not port.get("containerPort"):
            yield required(f"{path}.containerPort")
        yield from port_number_causes(port.get("containerPort"), f"{path}.containerPort")
        yield from port_number_causes(port.get("hostPort"), f"{path}.hostPort")
        yield from one_of(port.get("protocol"), PROTOCOLS, f"{path}.protocol")


def port_number_causes(port: int | None, field: str) -> Iterator[Cause]:
    """A port is out of range; none and 0 are accepted."""
    if port and not 1 <= port <= PORT_MAX:
        yield invalid(field, port, f"must be between 1 and {PORT_MAX}, inclusive")


def _port_name_problem(name: str) -> str | None:
    if len(name) > PORT_NAME_MAX:
        return f"must be no more than {PORT_NAME_MAX} characters"
    if dns_label_problem(name) or "--" in name:
        return "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
    return None if any(char.isalpha() for char in name) else "must contain at least one letter (a-z)"


def _host_port_causes(spec: Object, field: str) -> Iterator[Cause]:
    seen: set[tuple[object, ...]] = set()
    for index, container in enumerate(spec.get("containers") or ()):
        for at_port, port in enumerate(container.get("ports") or ()):
            key = (port.get("protocol"), port.get("hostIP"), port.get("hostPort"))
            if port.get("hostPort") and key in seen:
                yield duplicate(f"{field}.containers[{index}].ports[{at_port}].hostPort", port["hostPort"])
            seen.add(key)


def _variable_causes(variables: list[Object], field: str) -> Iterator[Cause]:
    for index, variable in enumerate(variables):
        path, name, source = f"{field}[{index}]", variable.get("name") or "", variable.get("valueFrom")
        if not name:
            yield required(f"{path}.name")
        elif "=" in name or not name.isascii() or not name.isprintable():
            text = "a valid environment variable name must consist only of printable ASCII characters other than '='"
            yield invalid(f"{path}.name", name, text)
        if source is None:
            continue
        given = [one for one in _SOURCES if source.get(one) is not None]
        if not given:
            yield invalid(f"{path}.valueFrom", "", f"must specify one of: {', '.join(f'`{one}`' for one in _SOURCES)}")
        elif variable.get("value"):
            yield invalid(f"{path}.valueFrom", "", "may not be specified when `value` is not empty")
        elif len(given) > 1:
            yield invalid(f"{path}.valueFrom", "", "may not have more than one field specified at a time")


def _mount_causes(mounts: list[Object], field: str, volumes: frozenset[str]) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, mount in enumerate(mounts):
        path, name, where = f"{field}[{index}]", mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            yield required(f"{path}.name")
        elif name not in volumes:
            yield Cause("FieldValueNotFound", f'Not found: "{name}"', f"{path}.name")
        if not where:
            yield required(f"{path}.mountPath")
        elif where in seen:
            yield invalid(f"{path}.mountPath", where, "must be unique")
        seen.add(where)
        if mount.get("subPath") and ".." in mount["subPath"].split("/"):
            yield invalid(f"{path}.subPath", mount["subPath"], "must not contain '..'")


def _probe_causes(probe: Object, field: str) -> Iterator[Cause]:
    given = [name for name in _HANDLERS if probe.get(name) is not None]
    if not given:
        yield required(field, "must specify a handler type")
    for name in given[1:]:
        yield forbidden(f"{field}.{name}", "may not specify more than 1 handler type")
    for name in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        yield from at_least(probe.get(name), 0, f"{field}.{name}")
    if field.endswith(("livenessProbe", "startupProbe")) and probe.get("successThreshold") not in {None, 1}:
        yield invalid(f"{field}.successThreshold", probe["successThreshold"], "must be 1")
