"""The Job that the chart keeps waiting until the services start it: its CronJob, its name, and what selects it."""

from typing import Any

import pytest

from gpuledger.api.labels import COVERAGE_JOBS
from gpuledger.local.kubeapi.selectors import LabelMatcher
from gpuledger.runtime.settings import COVERAGE_NAMESPACE, read_settings
from support.chart import IMAGE, NAMESPACE, WITH_SECRET, needs_helm, render, standby

CRON_JOB_NAME_MAX = 52
SCHEDULED = {"nfdCoverage": {"enabled": True, "schedule": "@daily"}}

pytestmark = needs_helm


@pytest.mark.parametrize(
    "values", [WITH_SECRET, WITH_SECRET | SCHEDULED, WITH_SECRET | {"nfdCoverage": {"enabled": True}}]
)
def test_a_job_waits_that_compares_labels_and_another_one_after_a_change_of_its_pod(values: dict[str, Any]) -> None:
    made = render(values)
    kept = standby(made)
    job = kept["spec"]["jobTemplate"]
    assert (job["spec"]["suspend"], job["spec"]["backoffLimit"], kept["spec"].get("suspend")) == (True, 0, None)
    assert (kept["spec"]["concurrencyPolicy"], kept["spec"]["schedule"]) == ("Forbid", "*/10 * * * *")
    assert LabelMatcher.parse(COVERAGE_JOBS).matches(job["metadata"]["labels"])
    (container,) = made.one("Deployment")["spec"]["template"]["spec"]["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert read_settings({COVERAGE_NAMESPACE: env[COVERAGE_NAMESPACE]}).coverage_namespace == NAMESPACE


def test_a_job_of_an_earlier_release_does_not_wait() -> None:
    def name(**more: Any) -> str:
        return str(standby(render({**WITH_SECRET, **more}))["metadata"]["name"])

    changed = {name(), name(image={**IMAGE["image"], "tag": "2"}), name(priorityClassName="high")}
    assert len(changed) == 3
    assert name() == name(replicas=3)
    assert max(map(len, changed)) <= CRON_JOB_NAME_MAX
