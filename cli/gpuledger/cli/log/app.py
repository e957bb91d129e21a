"""`gpuledger log`: its commands under their names."""

import typer

from gpuledger.cli.log import archive, archiving, backup, skip, stats, tail

app = typer.Typer(help="Inspect the log itself, export and restore it.", no_args_is_help=True)
app.command()(tail.tail)
app.command()(tail.show)
app.command()(stats.stats)
app.command()(archive.export)
app.command("import")(archive.restore)
app.add_typer(archiving.app, name="archive")
app.command()(backup.backup)
app.command()(backup.restore)
app.command()(stats.gaps)
app.command()(skip.skip)
