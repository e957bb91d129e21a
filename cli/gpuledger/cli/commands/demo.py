"""`gpuledger demo`: runs the main commands on a generated fleet, as a person would type them.

Every step is a process of its own, and its output is shown as it is. The demonstration needs no terminal and, unless
requested, leaves neither servers nor files behind.
"""

import csv
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.render import Console, quiet_pipe
from gpuledger.runtime.settings import (
    DATA_DIR,
    DATABASE_READ_URL,
    DATABASE_URL,
    KUBECONFIG,
    KUBERNETES_SERVICE_HOST,
    NATS_URL,
)
from gpuledger.tools.importers.sample import write_titan_sample
from gpuledger.tools.importers.titan import COLUMNS

SEED = 2014
DEVICES = 1_000
SAMPLE, BAD, REJECTS = "titan.csv", "bad.csv", "rejects.jsonl"
COMMAND = (sys.executable, "-c", "from gpuledger.cli.main import main; main()")
LINES_SHOWN_MAX = 16
STEP_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
READY = "health"
EARLIER, LATER = "2016-01-01", "2016-03-01"

BAD_ROWS = (
    ("9000000000001", "c9-0c0s0n0", "2015-01-01 00:00:00", "2015-02-01 00:00:00", "2678400", "TRUE", "DBE"),
    ("9000000000002", "c9-0c0s0n1", "2015-03-01 00:00:00", "2015-02-01 00:00:00", "0", "TRUE", ""),
    ("9000000000003", "c9-0c0s0n2", "yesterday", "2015-02-01 00:00:00", "0", "TRUE", ""),
    ("9000000000004", "c9-0c0s0n3", "2015-01-01 00:00:00", "2015-02-01 00:00:00", "2678400", "TRUE", "GREMLIN"),
)
"""One good row; then an end before its start, a malformed time, and an unknown event."""

DemoDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Work in this directory and keep it.", show_default="a temporary directory"),
]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the temporary directory for use with other commands.")]


def demo(data_dir: DemoDir = None, keep: Keep = False) -> None:
    """Demonstrate gpuledger on a generated fleet."""
    signal.signal(signal.SIGTERM, _interrupt)
    with _folder(data_dir, keep=keep) as folder:
        stage = Stage(folder, Console.standard())
        with quiet_pipe(stage.console.out), stage.up():
            perform(stage)
        stage.show_lines("", "That was all; everything has been stopped.")
        if keep or data_dir:
            stage.show_lines(f"Look around with: export {DATA_DIR}={shlex.quote(str(stage.data_dir))}")


class Stage:
    """Runs the commands of the demonstration in a directory, and shows their output."""

    def __init__(self, folder: Path, console: Console) -> None:
        self.console = console
        self.folder = folder
        self.data_dir = folder / "data"
        others = {NATS_URL, DATABASE_URL, DATABASE_READ_URL, KUBECONFIG, KUBERNETES_SERVICE_HOST}
        self._environ = {name: value for name, value in os.environ.items() if name not in others}
        self._environ |= {DATA_DIR: str(self.data_dir), "PYTHONUNBUFFERED": "1"}

    def show_lines(self, *lines: str) -> None:
        """Show lines."""
        self.console.out.write("".join(f"{line}\n" for line in lines))
        self.console.out.flush()

    def run(self, why: str, *arguments: str, expect: ExitCode = ExitCode.OK) -> str:
        """Show the reason and the command, run it, and show its output (the beginning, if it is long)."""
        self.show_lines("", f"# {why}", f"$ gpuledger {shlex.join(arguments)}")
        output = self.output_of(*arguments, expect=expect, stderr=subprocess.STDOUT)
        lines = output.splitlines()
        shown = lines if len(lines) <= LINES_SHOWN_MAX + 1 else lines[:LINES_SHOWN_MAX]
        self.show_lines(*shown)
        if len(lines) > len(shown):
            self.show_lines(f"... and {len(lines) - len(shown):,} more lines")
        return output

    def show(self, name: str) -> None:
        """Show a file."""
        self.show_lines("", f"$ cat {name}", (self.folder / name).read_text(encoding="utf-8").rstrip())

    def output_of(self, *arguments: str, expect: ExitCode = ExitCode.OK, stderr: int = subprocess.DEVNULL) -> str:
        """The output of a command.

        Raises:
            CliError: it ended with another code than expected.
        """
        done = subprocess.run(
            (*COMMAND, *arguments),
            **self._place(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            timeout=STEP_TIMEOUT_S,
            check=False,
        )
        if done.returncode != expect:
            self.show_lines(done.stdout)
            found = f"`gpuledger {shlex.join(arguments)}` ended with {done.returncode} and not {int(expect)}"
            raise CliError(found, "Read its output above")
        return str(done.stdout)

    def table(self, *arguments: str) -> list[dict[str, Any]]:
        """The rows that a command gives."""
        return [json.loads(line) for line in self.output_of(*arguments, "-o", "jsonl").splitlines()]

    @contextmanager
    def up(self) -> Iterator[None]:
        """`gpuledger up` in the background, for the length of the block."""
        self.show_lines("# Start the servers and the projections", "$ gpuledger up &")
        log = self.folder / "up.log"
        with log.open("w") as errors, self._background(errors.fileno()) as process:
            try:
                self._await_ready(process, log)
                yield
            finally:
                process.terminate()
                process.wait(STOP_TIMEOUT_S)

    def _background(self, errors: int) -> subprocess.Popen[str]:
        # In a session of its own, so that Ctrl-C reaches it through us, in order.
        return subprocess.Popen(
            (*COMMAND, "up", "--no-kube"),
            **self._place(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )

    def _place(self) -> Mapping[str, Any]:
        return {"cwd": self.folder, "env": self._environ, "text": True, "encoding": "utf-8"}

    def _await_ready(self, process: subprocess.Popen[str], log: Path) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip().startswith(READY):
                return
        raise CliError(f"`gpuledger up` did not start: {log.read_text().strip()}", "Run `gpuledger doctor`")


def perform(stage: Stage) -> None:
    """The demonstration, step by step."""
    lives = write_files(stage.folder)
    stage.run(f"Record a fleet's history: {lives:,} rows in Titan's format", "import", "titan", SAMPLE)
    stage.run("The fleet in one row", "report", "fleet", "-o", "yaml")
    stage.run("The same file again: nothing is new, so nothing is recorded", "import", "titan", SAMPLE)
    stage.run(
        "A file with bad rows: the good one is taken, the others are named, and the exit code is 3",
        *("import", "titan", BAD, "--rejects", REJECTS),
        expect=ExitCode.REJECTS,
    )
    stage.show(REJECTS)
    stage.run("Which devices were there at some moment of the past", "get", "devices", "--at", EARLIER)
    offender = str(stage.table("report", "offenders")[0]["device"])
    stage.run("The device that failed most: its whole life, across slots", "timeline", "device", offender)
    stage.run("Records that contradict each other are kept and reported", "report", "contradictions")
    stage.run("What changed between two dates", "diff", EARLIER, LATER)
    stage.run("Proof that the tables are what the log says", "verify")
    stage.run("Throw the tables of devices away and fold them anew from the log", "replay", "devices")
    summarise(stage)


def summarise(stage: Stage) -> None:
    """A summary in words."""
    log = stage.table("log", "stats")[0]
    fleet = stage.table("report", "fleet")[0]
    stage.show_lines(
        "",
        f"Seen: {log['events']:,} events in the log; from them alone, {fleet['devices']:,} devices in "
        f"{fleet['slots']:,} slots with {fleet['lives']:,} lives,",
        f"their state at {EARLIER}, the worst offender's life, contradictions, a comparison of dates, and a proof.",
    )


def write_files(folder: Path) -> int:
    """Write the sample and the file with bad rows; returns the number of rows of the sample."""
    with (folder / SAMPLE).open("w", newline="") as file:
        write_titan_sample(file, seed=SEED, devices=DEVICES)
    _write_rows(folder / BAD, [COLUMNS, *BAD_ROWS])
    with (folder / SAMPLE).open() as file:
        return sum(1 for _ in file) - 1


def _write_rows(path: Path, rows: Sequence[Sequence[str]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


@contextmanager
def _folder(chosen: Path | None, *, keep: bool) -> Iterator[Path]:
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
        yield chosen.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="gpuledger-demo-"))
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
