"""The `gpuledger` command line: all commands under their names, each imported when it is called.

A paragraph of a help text is as wide as the terminal, however its source is broken into lines.
"""

import typer

from gpuledger.cli.lazy import LazyCommands, Place, lazy_group

_COMMANDS = "gpuledger.cli.commands"

COMMANDS = LazyCommands(
    {
        "up": Place(f"{_COMMANDS}.up", "up"),
        "crds": Place(f"{_COMMANDS}.cluster", "crds"),
        "nfd": Place(f"{_COMMANDS}.cluster", "nfd"),
        "kube-api": Place(f"{_COMMANDS}.kube_api", "kube_api"),
        "import": Place(f"{_COMMANDS}.imports", "app"),
        "get": Place("gpuledger.cli.get.command", "get"),
        "describe": Place("gpuledger.cli.describe.command", "describe"),
        "why": Place(f"{_COMMANDS}.why", "app"),
        "what-if": Place(f"{_COMMANDS}.what_if", "app"),
        "schedule": Place(f"{_COMMANDS}.schedule", "app"),
        "pool": Place(f"{_COMMANDS}.pool", "app"),
        "device": Place(f"{_COMMANDS}.device", "app"),
        "node": Place(f"{_COMMANDS}.node_drain", "app"),
        "config": Place(f"{_COMMANDS}.config_preview", "app"),
        "quarantine": Place(f"{_COMMANDS}.quarantine", "app"),
        "remediation": Place(f"{_COMMANDS}.remediation", "app"),
        "incident": Place(f"{_COMMANDS}.incident", "app"),
        "timeline": Place(f"{_COMMANDS}.timeline", "timeline"),
        "diff": Place(
            f"{_COMMANDS}.diff",
            "diff",
            context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]},
        ),
        "report": Place(f"{_COMMANDS}.report", "report"),
        "sql": Place(f"{_COMMANDS}.sql", "sql"),
        "log": Place("gpuledger.cli.log.app", "app"),
        "verify": Place(f"{_COMMANDS}.projections", "verify"),
        "replay": Place(f"{_COMMANDS}.projections", "replay"),
        "history": Place(f"{_COMMANDS}.history", "app"),
        "snapshots": Place(f"{_COMMANDS}.snapshots", "app"),
        "agent": Place(f"{_COMMANDS}.agent", "app"),
        "runtime-proxy": Place(f"{_COMMANDS}.runtime_proxy", "runtime_proxy"),
        "config-agent": Place(f"{_COMMANDS}.config_agent", "app"),
        "preflight": Place(f"{_COMMANDS}.preflight", "app"),
        "permissions": Place(f"{_COMMANDS}.permissions", "permissions"),
        "auth-callout": Place(f"{_COMMANDS}.auth_callout", "auth_callout"),
        "health-gateway": Place(f"{_COMMANDS}.health_gateway", "health_gateway"),
        "nats-config": Place(f"{_COMMANDS}.nats_setup", "nats_config"),
        "nats-keys": Place(f"{_COMMANDS}.nats_setup", "nats_keys"),
        "admission": Place(f"{_COMMANDS}.cluster", "admission", hidden=True),
        "uninstall": Place(f"{_COMMANDS}.cluster", "uninstall", hidden=True),
        "serve": Place(f"{_COMMANDS}.serve", "app", hidden=True),
        "credentials": Place(f"{_COMMANDS}.credentials", "app", hidden=True),
        "migrate": Place(f"{_COMMANDS}.migrate", "migrate"),
        "doctor": Place(f"{_COMMANDS}.doctor", "doctor"),
        "demo": Place(f"{_COMMANDS}.demo", "demo"),
        "version": Place(f"{_COMMANDS}.migrate", "version"),
    }
)
"""In the order of the help."""

app = typer.Typer(
    name="gpuledger",
    cls=lazy_group(COMMANDS),
    help="The event-sourced ledger of a GPU fleet: what do we have, who holds it, and what happened at 03:12.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def gpuledger() -> None:
    """All commands."""
