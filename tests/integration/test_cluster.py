"""`tests/cluster/run` on the embedded API server: the steps of a real cluster, where only who runs pods differs."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from support.chart import needs_helm
from support.paths import ROOT
from support.pods.cluster import missing, pod_cluster
from support.pods.sandbox import IMAGE
from support.servers import short_directory

SCRIPT = ROOT / "tests" / "cluster" / "run"
RUN_MAX_S = 1500.0
LINES_MAX = 60
"""How many lines of each container's log are shown where a step failed."""


@pytest.mark.long
@pytest.mark.timeout(RUN_MAX_S + 60)
@needs_helm
@pytest.mark.skipif(bool(missing()), reason=missing())
async def test_a_cluster_that_nobody_prepared_is_as_it_was_after_all_steps(tmp_path: Path) -> None:
    programs = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    with short_directory() as work:
        # Neither the commands of the image's user nor those of root without capabilities pass a private folder.
        work.chmod(0o755)
        async with pod_cluster(tmp_path, work, "w1") as kubeconfig:
            command = (
                sys.executable,
                str(SCRIPT),
                "--kubeconfig",
                str(kubeconfig),
                "--image",
                IMAGE,
                # The cluster itself is the scheduler of pods that share cards: it runs no image but ours.
                "--set",
                "sharing.scheduler.enabled=false",
                # It has no network of pods either, and serves no NetworkPolicies.
                "--set",
                "sharing.extender.networkPolicy=false",
            )
            process = await asyncio.create_subprocess_exec(*command, env={**os.environ, "PATH": programs})
            async with asyncio.timeout(RUN_MAX_S):
                code = await process.wait()
            assert code == 0, last_lines_of_pods(work)


def last_lines_of_pods(work: Path) -> str:
    """What the containers of all pods wrote last."""
    logs = sorted((work / "pods").glob("*/*.log"))
    return "\n".join(f"{log.parent.name}/{log.stem}:\n{_tail(log)}" for log in logs)


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LINES_MAX:])
