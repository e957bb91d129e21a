"""The commands of `gpuledger log`, put together."""

import typer

from gpuledger.cli.log.export import export
from gpuledger.cli.log.gaps import gaps
from gpuledger.cli.log.restore import restore
from gpuledger.cli.log.show import show
from gpuledger.cli.log.skip import skip
from gpuledger.cli.log.stats import stats
from gpuledger.cli.log.tail import tail

app = typer.Typer(help="Look into the log itself, archive and restore it.", no_args_is_help=True)
app.command("tail")(tail)
app.command("show")(show)
app.command("stats")(stats)
app.command("export")(export)
app.command("import")(restore)
app.command("gaps")(gaps)
app.command("skip")(skip)
