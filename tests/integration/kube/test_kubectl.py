"""kubectl works with an API server: what people and scripts do with a cluster."""

import asyncio
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.kube_server import KubeServer
from support.waiting import eventually

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

COMMAND_S = 30.0
CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget, shortNames: [wd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Note, type: string, jsonPath: .spec.note, priority: 1}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            description: What it is to be.
            properties:
              size: {type: integer, minimum: 0, default: 1}
              replicas: {type: integer}
              note: {type: string}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""
WIDGET = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 3}}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "labels": {"app": "x"}},
    "spec": {"nodeName": "n1", "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "nginx"}]},
}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "nginx"}]},
        },
    },
}


class Kubectl:
    """Runs kubectl against one server, in a directory of its own."""

    def __init__(self, kubeconfig: Path, directory: Path) -> None:
        self._environment = {
            "KUBECONFIG": str(kubeconfig),
            "HOME": str(directory),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
        }
        self._directory = directory

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            "kubectl", *arguments, stdin=pipe, stdout=pipe, stderr=pipe, env=self._environment, cwd=self._directory
        )

    async def run(self, *arguments: str, given: object = None) -> tuple[int, str, str]:
        process = await self.start(*arguments)
        text = "" if given is None else given if isinstance(given, str) else yaml.safe_dump(given)
        async with asyncio.timeout(COMMAND_S):
            output, complaint = await process.communicate(text.encode())
        assert process.returncode is not None
        return process.returncode, output.decode(), complaint.decode()

    async def __call__(self, *arguments: str, given: object = None) -> str:
        code, output, complaint = await self.run(*arguments, given=given)
        assert code == 0, (arguments, output, complaint)
        return output.strip()

    async def fails(self, *arguments: str, given: object = None) -> str:
        code, output, complaint = await self.run(*arguments, given=given)
        assert code != 0, (arguments, output)
        return complaint

    async def becomes(self, expected: str, *arguments: str, given: object = None) -> None:
        """Return when the command succeeds and says so; a real server learns of some things a moment later."""

        async def has_expected() -> bool:
            code, output, _ = await self.run(*arguments, given=given)
            return code == 0 and expected in output

        await eventually(has_expected)

    async def json(self, *arguments: str) -> Any:
        return json.loads(await self(*arguments, "-o", "json"))


@pytest.fixture
async def kubectl(kube: KubeServer, tmp_path: Path) -> Kubectl:
    return Kubectl(kube.kubeconfig, tmp_path)


@pytest.fixture
async def widgets(kubectl: Kubectl) -> Kubectl:
    await kubectl("apply", "-f", "-", given=CRD)
    await kubectl("wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=60s")
    await kubectl.becomes("widget.example.com/w created", "apply", "-f", "-", given=WIDGET)
    return kubectl


async def test_the_server_lists_what_it_serves(widgets: Kubectl) -> None:
    assert re.search(r"^Server Version: v\d+\.\d+", await widgets("version"), re.MULTILINE)
    await widgets.becomes("example.com/v1", "api-versions")
    assert {"v1", "apps/v1"} <= set((await widgets("api-versions")).split())
    resources = await widgets("api-resources", "-o", "wide")
    assert any(line.split()[:3] == ["widgets", "wd", "example.com/v1"] for line in resources.splitlines())
    assert "/apis/example.com/v1" in await widgets("get", "--raw", "/")
    assert await widgets("get", "--raw", "/readyz") == "ok"


async def test_objects_are_got_in_every_form(widgets: Kubectl) -> None:
    header, row = (await widgets("get", "widgets")).splitlines()
    assert (header.split(), row.split()) == (["NAME", "SIZE"], ["w", "3"])
    assert (await widgets("get", "wd", "-o", "wide")).splitlines()[0].split() == ["NAME", "SIZE", "NOTE"]
    assert yaml.safe_load(await widgets("get", "wd", "w", "-o", "yaml"))["spec"] == {"size": 3}
    assert (await widgets.json("get", "widgets"))["items"][0]["kind"] == "Widget"
    assert await widgets("get", "wd", "-o", "name") == "widget.example.com/w"
    assert await widgets("get", "wd", "w", "-o", "jsonpath={.spec.size}") == "3"
    assert "Size" in await widgets("get", "wd", "-o", "custom-columns=Size:.spec.size")
    assert "widget.example.com/w" in await widgets("get", "all")
    assert "No resources found" in (await widgets.run("get", "wd", "-A", "-l", "x=y"))[2]
    assert await widgets("get", "wd", "--field-selector", "metadata.name=w", "-o", "name")
    assert "NotFound" in await widgets.fails("get", "wd", "none")


async def test_objects_are_described(widgets: Kubectl) -> None:
    assert "Size:" in await widgets("describe", "wd", "w")
    assert "kubernetes.io/metadata.name=default" in await widgets("describe", "namespace", "default")
    await widgets("apply", "-f", "-", given=NODE)
    assert "Taints:" in await widgets("describe", "node", "n1")


async def test_types_are_explained(widgets: Kubectl) -> None:
    await widgets.becomes("What it is to be.", "explain", "widget.spec")
    output = await widgets("explain", "widget.spec")
    assert "size\t<integer>" in output
    assert "replicas\t<integer>" in await widgets("explain", "widget", "--recursive")
    assert "<integer>" in await widgets("explain", "deployment.spec.replicas")
    assert "nodeName\t<string>" in await widgets("explain", "pod", "--recursive")


async def test_applying_creates_changes_and_leaves_alone(widgets: Kubectl) -> None:
    bigger = WIDGET | {"spec": {"size": 5, "note": "x"}}
    assert await widgets("apply", "-f", "-", given=WIDGET) == "widget.example.com/w unchanged"
    assert await widgets("apply", "-f", "-", given=bigger) == "widget.example.com/w configured"
    assert await widgets("apply", "-f", "-", given=WIDGET) == "widget.example.com/w configured"
    assert "note" not in (await widgets.json("get", "wd", "w"))["spec"]
    assert await widgets("apply", "-f", "-", "--dry-run=server", given=bigger)
    assert (await widgets.json("get", "wd", "w"))["spec"]["size"] == 3
    code, difference, _ = await widgets.run("diff", "-f", "-", given=bigger)
    assert code == 1
    assert "size: 5" in difference


async def test_applying_on_the_server_reports_conflicts(widgets: Kubectl) -> None:
    other = WIDGET | {"spec": {"size": 9}}
    assert await widgets("apply", "--server-side", "--field-manager=a", "-f", "-", given=WIDGET)
    assert "conflict" in await widgets.fails("apply", "--server-side", "--field-manager=b", "-f", "-", given=other)
    await widgets("apply", "--server-side", "--field-manager=b", "--force-conflicts", "-f", "-", given=other)
    owners = (await widgets.json("get", "wd", "w", "--show-managed-fields"))["metadata"]["managedFields"]
    assert {"b"} <= {one["manager"] for one in owners if one["operation"] == "Apply"}


async def test_a_wrong_object_is_refused(widgets: Kubectl) -> None:
    assert "spec.size" in await widgets.fails("apply", "-f", "-", given=WIDGET | {"spec": {"size": -1}})
    assert "unknown field" in await widgets.fails("apply", "-f", "-", given=WIDGET | {"spec": {"colour": "red"}})


async def test_labels_annotations_and_patches(widgets: Kubectl) -> None:
    await widgets("label", "wd", "w", "a=b")
    assert "already" in await widgets.fails("label", "wd", "w", "a=c")
    await widgets("label", "wd", "w", "a=c", "--overwrite")
    await widgets("annotate", "wd", "w", "note=x")
    await widgets("patch", "wd", "w", "--type=merge", "-p", '{"spec":{"note":"m"}}')
    await widgets("patch", "wd", "w", "--type=json", "-p", '[{"op":"replace","path":"/spec/size","value":7}]')
    obj = await widgets.json("get", "wd", "-l", "a=c")
    assert (obj["items"][0]["spec"], obj["items"][0]["metadata"]["annotations"]["note"]) == (
        {"note": "m", "size": 7},
        "x",
    )
    assert "not supported" in await widgets.fails("patch", "wd", "w", "--type=strategic", "-p", "{}")
    await widgets("apply", "-f", "-", given=DEPLOYMENT)
    patch = '{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"nginx:2"}]}}}}'
    await widgets("patch", "deployment", "web", "--type=strategic", "-p", patch)
    assert await widgets("get", "deployment", "web", "-o", "jsonpath={..image}") == "nginx:2"


async def test_replacing(kubectl: Kubectl) -> None:
    await kubectl("create", "configmap", "c", "--from-literal=a=b")
    obj = await kubectl.json("get", "configmap", "c")
    obj["data"]["a"] = "z"
    await kubectl("replace", "-f", "-", given=obj)
    assert await kubectl("get", "configmap", "c", "-o", "jsonpath={.data.a}") == "z"
    assert "modified" in await kubectl.fails("replace", "-f", "-", given=obj)


async def test_waiting(widgets: Kubectl) -> None:
    ready = '{"status":{"phase":"Up","conditions":[{"type":"Ready","status":"True"}]}}'
    waiting = asyncio.create_task(widgets("wait", "wd/w", "--for=condition=Ready", "--timeout=60s"))
    await widgets("patch", "wd", "w", "--subresource=status", "--type=merge", "-p", ready)
    assert await waiting == "widget.example.com/w condition met"
    assert await widgets("wait", "wd/w", "--for=jsonpath={.status.phase}=Up", "--timeout=60s")
    await widgets("patch", "wd", "w", "--type=merge", "-p", '{"metadata":{"finalizers":["example.com/f"]}}')
    await widgets("delete", "wd", "w", "--wait=false")
    gone = asyncio.create_task(widgets("wait", "wd/w", "--for=delete", "--timeout=60s"))
    assert (await widgets.json("get", "wd", "w"))["metadata"]["deletionTimestamp"]
    await widgets("patch", "wd", "w", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    assert await gone in {"widget.example.com/w condition met", ""}  # nothing, where it was gone before kubectl looked


@pytest.mark.embedded_only("dependents are collected by a controller")
async def test_deleting_takes_dependents_along_or_leaves_them(widgets: Kubectl) -> None:
    async def owned(name: str) -> None:
        owner = (await widgets.json("get", "wd", "w"))["metadata"]
        reference = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": owner["uid"]}
        reference["blockOwnerDeletion"] = True
        meta = {"name": name, "ownerReferences": [reference]}
        await widgets("create", "-f", "-", given={"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})

    await owned("orphan")
    await widgets("delete", "wd", "w", "--cascade=orphan")
    assert "ownerReferences" not in (await widgets.json("get", "cm", "orphan"))["metadata"]
    for cascade in ("foreground", "background"):
        await widgets("apply", "-f", "-", given=WIDGET)
        await owned(cascade)
        await widgets("delete", "wd", "w", f"--cascade={cascade}")
        await widgets("wait", f"cm/{cascade}", "--for=delete", "--timeout=60s")


async def test_watching_ends_when_it_is_stopped(widgets: Kubectl) -> None:
    watching = await widgets.start("get", "wd", "-w", "--no-headers")
    assert watching.stdout is not None
    async with asyncio.timeout(COMMAND_S):
        assert (await watching.stdout.readline()).split() == [b"w", b"3"]
        await widgets("patch", "wd", "w", "--type=merge", "-p", '{"spec":{"size":8}}')
        assert (await watching.stdout.readline()).split() == [b"w", b"8"]
        watching.terminate()
        await watching.wait()


@pytest.mark.embedded_only("a namespace is emptied by a controller")
async def test_namespaces(kubectl: Kubectl) -> None:
    await kubectl("create", "namespace", "team")
    await kubectl("create", "configmap", "c", "-n", "team", "--from-literal=a=b")
    await kubectl("create", "secret", "generic", "s", "-n", "team", "--from-literal=a=b")
    assert await kubectl("get", "secret", "s", "-n", "team", "-o", "jsonpath={.data.a}") == "Yg=="
    await kubectl("delete", "namespace", "team", "--timeout=60s")
    assert "not found" in await kubectl.fails("get", "configmap", "c", "-n", "team")
    assert "Forbidden" in await kubectl.fails("delete", "namespace", "default")


async def test_nodes_are_cordoned_and_tainted(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", given=NODE)
    await kubectl("cordon", "n1")
    assert "SchedulingDisabled" in await kubectl("get", "nodes")
    await kubectl("uncordon", "n1")
    await kubectl("taint", "node", "n1", "gpu=broken:NoSchedule")
    assert "broken" in await kubectl("get", "node", "n1", "-o", "jsonpath={.spec.taints[*].value}")
    await kubectl("taint", "node", "n1", "gpu-")


@pytest.mark.embedded_only("what a disruption budget allows is counted by a controller")
async def test_nodes_are_drained(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", given=NODE)
    await kubectl("apply", "-f", "-", given=POD)
    running = '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}'
    await kubectl("patch", "pod", "p", "--subresource=status", "-p", running)
    await kubectl("create", "poddisruptionbudget", "b", "--selector=app=x", "--min-available=1")
    assert "disruption budget" in await kubectl.fails("drain", "n1", "--force", "--timeout=2s")
    await kubectl("delete", "poddisruptionbudget", "b")
    assert "evicted" in await kubectl("drain", "n1", "--force", "--timeout=60s")
    assert await kubectl("get", "pods", "-o", "name") == ""


async def test_commands_that_build_objects(kubectl: Kubectl) -> None:
    await kubectl("create", "deployment", "d", "--image=nginx", "--replicas=0")
    assert await kubectl("get", "deployment", "d", "-o", "jsonpath={.spec.replicas}") == "0"
    await kubectl("run", "p", "--image=nginx", "--port=80")
    assert await kubectl("get", "pod", "p", "-o", "jsonpath={..containerPort}") == "80"
    await kubectl("create", "job", "j", "--image=nginx")
    await kubectl("create", "cronjob", "cj", "--image=nginx", "--schedule=* * * * *")
    await kubectl("create", "serviceaccount", "sa")
    await kubectl("create", "role", "r", "--verb=get", "--resource=pods")
    await kubectl("create", "rolebinding", "rb", "--role=r", "--serviceaccount=default:sa")
    await kubectl("create", "clusterrole", "cr", "--verb=get", "--resource=nodes")
    await kubectl("create", "service", "clusterip", "s", "--tcp=80:8080")
    assert await kubectl("get", "service", "s", "-o", "jsonpath={.spec.ports[0].targetPort}") == "8080"
    await kubectl("create", "quota", "q", "--hard=pods=1,cpu=500m")
    await kubectl("create", "priorityclass", "pc", "--value=10")
    await kubectl("set", "image", "deployment/d", "nginx=nginx:2")
    assert "scaled" in await kubectl("scale", "deployment", "d", "--current-replicas=0", "--replicas=3")
    assert await kubectl("get", "deployment", "d", "-o", "jsonpath={.spec.replicas}") == "3"


async def test_access_is_reviewed(kubectl: Kubectl) -> None:
    assert await kubectl("auth", "can-i", "delete", "nodes") == "yes"
    assert "*.*" in await kubectl("auth", "can-i", "--list")
    assert "system:masters" in await kubectl("auth", "whoami")


async def test_an_administrator_may_act_as_another(kubectl: Kubectl) -> None:
    other = ("--as=system:serviceaccount:default:sa", "-n", "default")
    await kubectl("create", "serviceaccount", "sa")
    assert (await kubectl.run("auth", "can-i", "list", "pods", *other))[1].strip() == "no"
    assert "Forbidden" in await kubectl.fails("get", "pods", *other)
    await kubectl("create", "role", "reader", "--verb=get,list", "--resource=pods")
    await kubectl("create", "rolebinding", "readers", "--role=reader", "--serviceaccount=default:sa")
    await kubectl.becomes("yes", "auth", "can-i", "list", "pods", *other)
    assert await kubectl("get", "pods", "-o", "name", *other) == ""
    assert "Forbidden" in await kubectl.fails("delete", "--raw", "/api/v1/namespaces/default/pods/p", *other)
    assert "system:serviceaccounts:default" in await kubectl("auth", "whoami", *other)


async def test_debug_adds_an_ephemeral_container(kubectl: Kubectl) -> None:
    await kubectl("run", "p", "--image=nginx")
    await kubectl("debug", "p", "--image=busybox", "--container=debugger", "--", "sleep", "60")
    (found,) = (await kubectl.json("get", "pod", "p"))["spec"]["ephemeralContainers"]
    assert (found["name"], found["image"], found["command"]) == ("debugger", "busybox", ["sleep", "60"])


@pytest.mark.embedded_only("it says what the embedded server does not implement")
@pytest.mark.parametrize(
    "command",
    [("logs", "p"), ("exec", "p", "--", "ls"), ("attach", "p")],
    ids=lambda command: command[0],
)
async def test_unimplemented_commands_are_errors(kubectl: Kubectl, command: tuple[str, ...]) -> None:
    await kubectl("run", "p", "--image=nginx")
    await kubectl("patch", "pod", "p", "--subresource=status", "-p", '{"status":{"phase":"Running"}}')
    assert "does not implement" in await kubectl.fails(*command)
