"""The embedded API server answers as a real one did: the exchanges recorded from Kubernetes 1.36."""

import asyncio
import json
import re
import sys
from collections import Counter
from typing import Any

import pytest

from support.kube_server import KubeServer
from support.paths import ROOT

RECORDED = ROOT.parent / "shared" / "kubeapi"
KNOWN = ROOT / "docs" / "kube-api.md"
CORE_STEPS = 253
EXTRA_SHARE = 0.8
TIERS = ("core", "extra")


@pytest.mark.shared
@pytest.mark.skipif(not RECORDED.is_dir(), reason=f"no recorded exchanges in {RECORDED}")
async def test_it_answers_as_kubernetes_did(kube: KubeServer) -> None:
    steps = await checked(kube)
    failed = {tier: {name for name, step in steps.items() if step["tier"] == tier and not step["ok"]} for tier in TIERS}
    count = Counter(step["tier"] for step in steps.values())
    assert (failed["core"], count["core"]) == (set(), CORE_STEPS)
    if kube.token:
        return  # a real server of another version may differ in what hardly anybody relies on
    assert len(failed["extra"]) <= (1 - EXTRA_SHARE) * count["extra"]
    assert failed["extra"] == set(re.findall(r"^- `([a-z0-9-]+/[a-z0-9-]+)`", KNOWN.read_text(), re.MULTILINE))


async def checked(kube: KubeServer) -> dict[str, dict[str, Any]]:
    """What the recording's checker says of each step."""
    credentials = ("--ca", str(kube.ca), "--token", kube.token) if kube.token else ()
    command = (sys.executable, str(RECORDED / "check.py"), "--server", kube.url, *credentials, "--json")
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    results = json.loads(output)["results"]
    return {f"{row['id']}/{step['id']}": step for row in results for step in row["steps"]}
