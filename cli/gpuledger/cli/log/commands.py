"""The `gpuledger log` group: its commands under their names."""

import typer

from gpuledger.cli.log.export import export, restore
from gpuledger.cli.log.skip import skip
from gpuledger.cli.log.stats import gaps, stats
from gpuledger.cli.log.tail import show, tail

app = typer.Typer(help="Inspect the log itself, export and restore it.", no_args_is_help=True)
app.command("tail")(tail)
app.command("show")(show)
app.command("stats")(stats)
app.command("export")(export)
app.command("import")(restore)
app.command("gaps")(gaps)
app.command("skip")(skip)
