"""`gpuledger config-agent`: runs the agent of machine configuration of one node, or shows what it would do.

It needs the Kubernetes API, and neither the ledger nor the database.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from gpuledger.api.machine_config import ANNOTATION_DESIRED
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.render import Console, quiet_pipe
from gpuledger.configagent import settings as names
from gpuledger.configagent.dry_run import dry_run
from gpuledger.configagent.errors import AccessError, ConfigAgentError
from gpuledger.configagent.kube_access import read_access
from gpuledger.configagent.kube_api import KubeNodeApi
from gpuledger.configagent.kube_http import KubeHttp
from gpuledger.configagent.settings import read_config_agent_settings
from gpuledger.domain.machineconfig.rendered_object import RenderedObjectError, read_object
from gpuledger.runtime.settings import METRICS_LISTEN

app = typer.Typer(
    help="The agent of machine configuration of one node: run it, or show its plan.", no_args_is_help=True
)

Node = Annotated[
    str | None, typer.Option("--node", metavar="NAME", help=f"The node's name in Kubernetes (or ${names.NODE_NAME}).")
]
Root = Annotated[
    Path | None,
    typer.Option(
        "--host-root",
        metavar="DIR",
        help=f"Where the host's root is mounted (or ${names.HOST_ROOT}).",
        show_default=names.DEFAULT_HOST_ROOT,
    ),
]
Systemctl = Annotated[
    str | None,
    typer.Option(
        "--systemctl",
        metavar="COMMAND",
        help=f"The command that is the host's systemctl (or ${names.SYSTEMCTL}).",
        show_default="chroot DIR systemctl",
    ),
]
Metrics = Annotated[
    str | None,
    typer.Option(
        "--metrics", metavar="HOST:PORT", help=f"Where to serve /metrics and /healthz (or ${METRICS_LISTEN})."
    ),
]
Rendered = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "-f",
        metavar="RENDERED.yaml",
        exists=True,
        dir_okay=False,
        help="A RenderedMachineConfig; without it, the one that the Node is to have.",
    ),
]


@app.command("run")
def run_config_agent(
    node: Node = None, host_root: Root = None, systemctl: Systemctl = None, metrics: Metrics = None
) -> None:
    """Bring this node to the configuration that its Node object names, until Ctrl-C.

    It writes files of the host, runs systemctl, and reboots the machine where the pool's strategy is IfRequired.
    """
    environ = _environ(node, host_root, systemctl, metrics)
    try:
        read_config_agent_settings(environ)
        read_access(environ)
    except AccessError as error:
        raise CliError(str(error), code=ExitCode.USAGE) from error
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, "-m", "gpuledger.configagent"], environ)  # noqa: S606 - our own program


@app.command("plan")
def show_plan(node: Node = None, host_root: Root = None, systemctl: Systemctl = None, file: Rendered = None) -> None:
    """Show what the agent would do to this host, and change nothing.

    Exits with 1 where the configuration is refused, or cannot be applied to this host.
    """
    environ = _environ(node, host_root, systemctl, None)
    if file is not None:
        environ.setdefault(names.NODE_NAME, "localhost")
    settings = read_config_agent_settings(environ)
    try:
        document = asyncio.run(_desired(environ, settings.node)) if file is None else _read(file)
        plan, lines = dry_run(settings.host(), read_object(document))
    except (ConfigAgentError, RenderedObjectError) as error:
        raise CliError(str(error)) from error
    console = Console.standard()
    with quiet_pipe(console.out):
        console.out.write("\n".join([*lines, ""]))
    if plan.problems:
        raise typer.Exit(ExitCode.ERROR)


def _environ(node: str | None, root: Path | None, systemctl: str | None, metrics: str | None) -> dict[str, str]:
    given = {names.NODE_NAME: node, names.HOST_ROOT: root, names.SYSTEMCTL: systemctl, METRICS_LISTEN: metrics}
    return {**os.environ, **{name: str(value) for name, value in given.items() if value is not None}}


def _read(file: Path) -> Any:  # noqa: ANN401 - what somebody wrote
    try:
        document = yaml.safe_load(file.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise CliError(f"{file} is no YAML: {error}", code=ExitCode.USAGE) from error
    if not isinstance(document, dict):
        raise CliError(f"{file} has no object; give one RenderedMachineConfig.", code=ExitCode.USAGE)
    return document


async def _desired(environ: dict[str, str], node: str) -> Any:  # noqa: ANN401 - the object as JSON
    """The configuration that the Node is to have."""
    api = KubeNodeApi(KubeHttp(read_access(environ)), node)
    annotations = await anext(stream := api.node())
    await stream.aclose()
    if not (name := annotations.get(ANNOTATION_DESIRED)):
        raise CliError(f"Node {node} is to have no configuration yet; give one with --file.")
    return await api.rendered(name)
