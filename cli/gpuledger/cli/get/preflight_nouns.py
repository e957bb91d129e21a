"""The columns and tables of preflight checks and gangs, as `gpuledger preflight list` and `gangs` show them."""

from typing import Final

from gpuledger.cli.get.noun import Noun
from gpuledger.cli.render import Column, View
from gpuledger.domain.preflight.results import BYTES_PER_GB, MICROSECONDS_PER_S
from gpuledger.domain.preflight.results_rows import CHECK, GANG


def seconds(value: object) -> str:
    """A duration in microseconds, in seconds."""
    assert isinstance(value, int)
    return f"{value / MICROSECONDS_PER_S:.1f}s"


def bandwidth(value: object) -> str:
    """Bytes per second, in GB/s."""
    assert isinstance(value, int)
    return f"{value / BYTES_PER_GB:.2f}"


PREFLIGHT_CHECKS: Final = Noun(
    View(
        "preflightcheck",
        (
            Column("pod"),
            Column("check", "check_name"),
            Column("attempt", right=True),
            Column("node"),
            Column("state"),
            Column("outcome"),
            Column("codes"),
            Column("took", "duration_us", right=True, format=seconds),
            Column("ended", "ended_at"),
            Column("message"),
            Column("gang", wide=True),
            Column("gang wait", "gang_wait_us", wide=True, right=True, format=seconds),
            Column("GB/s", "bandwidth_bytes_s", wide=True, right=True, format=bandwidth),
            Column("threshold", "threshold_bytes_s", wide=True, right=True, format=bandwidth),
            Column("exit code", wide=True, right=True),
            Column("reason", wide=True),
            Column("started", "started_at", wide=True),
            Column("uid", wide=True),
        ),
        "pod",
    ),
    "preflight",
    CHECK,
    ("pod", "uid", "number", "attempt"),
    "preflight_checks_at",
    hidden=("observed_at", "position", "gone_at"),
    narrowed_by=("node", "namespace", "outcome"),
    ends="over_at",
)

PREFLIGHT_GANGS: Final = Noun(
    View(
        "preflightgang",
        (
            Column("gang"),
            Column("state"),
            Column("expected", right=True),
            Column("found", right=True),
            Column("waited", "waited_us", right=True, format=seconds),
            Column("began", "began_at"),
            Column("complete", "completed_at"),
            Column("timed out", "timed_out_at"),
            Column("dissolved", "dissolved_at"),
            Column("reason"),
            Column("config map", wide=True),
            Column("source", wide=True),
            Column("message", wide=True),
        ),
        "gang",
    ),
    "preflight",
    GANG,
    ("gang", "began_at"),
    "preflight_gangs_at",
    hidden=("last_at", "last_kind", "life", "events"),
    narrowed_by=("namespace",),
    ends="dissolved_at",
)
