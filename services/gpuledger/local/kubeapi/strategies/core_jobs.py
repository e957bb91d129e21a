"""Jobs and cron jobs as objects. No controller is here that would run them."""

from collections.abc import Iterator, Mapping

from gpuledger.edge.kube.schema.causes import Cause, Object, invalid, required
from gpuledger.local.kubeapi.resources import Context
from gpuledger.local.kubeapi.strategies.core_podspec import pod_spec_causes
from gpuledger.local.kubeapi.strategies.core_quantities import check_quantities
from gpuledger.local.kubeapi.strategies.core_shared import (
    BuiltinStrategy,
    at,
    at_least,
    fill,
    immutable,
    one_of,
    part_of,
)
from gpuledger.local.kubeapi.strategies.core_template import default_pod_spec, quantity_maps
from gpuledger.local.kubeapi.strategies.core_workloads import default_template, template_causes

BACKOFF_LIMIT = 6
RESTART_POLICIES = ("OnFailure", "Never")
CONCURRENCY = ("Allow", "Forbid", "Replace")
CRON_NAME_MAX = 52
CRON_FIELDS = 5
_PREFIX = "batch.kubernetes.io/"
_COUNTS = ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
_JOB = {
    "backoffLimit": BACKOFF_LIMIT,
    "completionMode": "NonIndexed",
    "suspend": False,
    "manualSelector": False,
}


class JobStrategy(BuiltinStrategy):
    """The behaviour of jobs."""

    status_on_create: Mapping[str, object] | None = {}

    def decode(self, body: Object) -> None:
        """Refuse quantities that are none (400)."""
        check_quantities(quantity_maps(at(body, "spec", "template", "spec")), "Job", "v1")

    def default(self, obj: Object) -> None:
        """One completion, one at a time, unless said otherwise."""
        spec = part_of(obj, "spec")
        if spec.get("completions") is None and spec.get("parallelism") is None:
            spec["completions"] = 1
        fill(spec, {"parallelism": 1})
        fill(spec, _JOB)
        replaced = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
        fill(spec, {"podReplacementPolicy": replaced})
        default_template(spec)
        super().default(obj)

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        """Choose the job's pods by its uid."""
        super().prepare_for_create(obj, context)
        if not obj["spec"].get("manualSelector"):
            _select_by_uid(obj)

    def validate(self, obj: Object) -> list[Cause]:
        """What is wrong with a job."""
        spec = at(obj, "spec")
        causes = [cause for name in _COUNTS for cause in at_least(spec.get(name), 0, f"spec.{name}")]
        causes += one_of(spec.get("completionMode"), ("NonIndexed", "Indexed"), "spec.completionMode")
        if spec.get("completionMode") == "Indexed" and spec.get("completions") is None:
            causes.append(required("spec.completions", "when completion mode is Indexed"))
        if spec.get("selector") is None:
            causes.append(required("spec.selector"))
        return [*causes, *template_causes(spec, RESTART_POLICIES)]

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[Cause]:
        """Template and selector never change, except that a suspended job may still be placed."""
        if subresource:
            return []
        spec, before = at(obj, "spec"), at(old, "spec")
        fixed = ["selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy"]
        if spec.get("completionMode") != "Indexed":
            fixed.append("completions")
        causes = [*self.validate(obj), *immutable(spec, before, fixed, "spec.")]
        if not before.get("suspend"):
            causes += immutable(spec, before, ("template",), "spec.")
        return causes

    def field_labels(self, obj: Object) -> Mapping[str, str]:
        """What field selectors of jobs see."""
        return {"status.successful": str(at(obj, "status").get("succeeded") or 0)}

    def field_names(self) -> frozenset[str]:
        """Which names field selectors of jobs may use."""
        return frozenset({"status.successful"})


class CronJobStrategy(BuiltinStrategy):
    """The behaviour of cron jobs."""

    status_on_create: Mapping[str, object] | None = {}

    def decode(self, body: Object) -> None:
        """Refuse quantities that are none (400)."""
        template = at(body, "spec", "jobTemplate", "spec", "template", "spec")
        check_quantities(quantity_maps(template), "CronJob", "v1")

    def default(self, obj: Object) -> None:
        """Let runs overlap; keep three that succeeded and one that failed."""
        spec = part_of(obj, "spec")
        fill(spec, {"concurrencyPolicy": "Allow", "suspend": False})
        fill(spec, {"successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1})
        if template := at(spec, "jobTemplate", "spec", "template", "spec"):
            default_pod_spec(template)
        super().default(obj)

    def validate(self, obj: Object) -> list[Cause]:
        """What is wrong with a cron job."""
        spec = at(obj, "spec")
        causes = [*_schedule_causes(spec.get("schedule") or "")]
        causes += one_of(spec.get("concurrencyPolicy"), CONCURRENCY, "spec.concurrencyPolicy")
        for name in ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
            causes += at_least(spec.get(name), 0, f"spec.{name}")
        field, pod = "spec.jobTemplate.spec.template.spec", at(spec, "jobTemplate", "spec", "template", "spec")
        causes += pod_spec_causes(pod, field)
        if pod.get("restartPolicy") in {None, "Always"}:
            causes += one_of(pod.get("restartPolicy"), RESTART_POLICIES, f"{field}.restartPolicy")
        if len(at(obj, "metadata").get("name") or "") > CRON_NAME_MAX:
            causes.append(
                invalid("metadata.name", obj["metadata"]["name"], f"must be no more than {CRON_NAME_MAX} characters")
            )
        return causes


def _select_by_uid(job: Object) -> None:
    uid, name = job["metadata"].get("uid", ""), job["metadata"].get("name", "")
    template = job["spec"]["template"]["metadata"]
    own = {f"{_PREFIX}controller-uid": uid, f"{_PREFIX}job-name": name, "controller-uid": uid, "job-name": name}
    template["labels"] = (template.get("labels") or {}) | own
    if job["spec"].get("selector") is None:
        job["spec"]["selector"] = {"matchLabels": {f"{_PREFIX}controller-uid": uid}}


def _schedule_causes(schedule: str) -> Iterator[Cause]:
    if not schedule:
        yield required("spec.schedule")
    elif not schedule.startswith("@") and len(schedule.split()) != CRON_FIELDS:
        yield invalid("spec.schedule", schedule, f"expected exactly {CRON_FIELDS} fields")
