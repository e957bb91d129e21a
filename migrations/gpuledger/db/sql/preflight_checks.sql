CREATE VIEW report.preflight_checks AS
SELECT
    attempt.namespace,
    attempt.pod,
    attempt.uid,
    attempt.check_name,
    attempt.attempt,
    attempt.node,
    attempt.gang,
    attempt.state,
    attempt.outcome,
    attempt.exit_code,
    attempt.codes,
    attempt.message,
    attempt.reason,
    coalesce(attempt.started_at, attempt.running_at) AS started_at,
    attempt.ended_at,
    round(attempt.duration_us / 1000000.0, 3) AS duration_s,
    round(attempt.gang_wait_us / 1000000.0, 3) AS gang_wait_s,
    round(attempt.bandwidth_bytes_s / 1000000000.0, 3) AS bandwidth_gbps,
    round(attempt.threshold_bytes_s / 1000000000.0, 3) AS threshold_gbps,
    attempt.first_at
FROM gpuledger_live.preflight_check AS attempt
ORDER BY attempt.first_at DESC, attempt.pod, attempt.uid, attempt.number, attempt.attempt;

COMMENT ON VIEW report.preflight_checks IS 'One row per attempt of a pod at a preflight check. The latest first.';
COMMENT ON COLUMN report.preflight_checks.namespace IS 'The namespace of the pod.';
COMMENT ON COLUMN report.preflight_checks.pod IS 'The pod, as NAMESPACE/NAME.';
COMMENT ON COLUMN report.preflight_checks.uid IS 'The UID of the pod, as its name may come again.';
COMMENT ON COLUMN report.preflight_checks.check_name IS 'The check.';
COMMENT ON COLUMN report.preflight_checks.attempt IS 'Which attempt it is; the first is 0.';
COMMENT ON COLUMN report.preflight_checks.node IS 'The node that the pod is on; null while it has none.';
COMMENT ON COLUMN report.preflight_checks.gang IS 'The gang of the pod, as NAMESPACE/ID; null if it belongs to none.';
COMMENT ON COLUMN report.preflight_checks.state IS 'How far it was seen: waiting, running or ended.';
COMMENT ON COLUMN report.preflight_checks.outcome IS
    'passed, failed, config-error, gang-timeout, not-reported or skipped; not-run or unknown if its pod ended first; else null.';
COMMENT ON COLUMN report.preflight_checks.exit_code IS 'The exit code of the container; null if it is not known.';
COMMENT ON COLUMN report.preflight_checks.codes IS 'The error codes that the check found, separated by commas.';
COMMENT ON COLUMN report.preflight_checks.message IS 'What the check says about it.';
COMMENT ON COLUMN report.preflight_checks.reason IS 'Why the container ended as Kubernetes has it, such as Error or OOMKilled.';
COMMENT ON COLUMN report.preflight_checks.started_at IS 'When it began; null before.';
COMMENT ON COLUMN report.preflight_checks.ended_at IS 'When it ended; null before, and if that is not known.';
COMMENT ON COLUMN report.preflight_checks.duration_s IS 'How long it took, in seconds.';
COMMENT ON COLUMN report.preflight_checks.gang_wait_s IS 'How long it waited for its gang, in seconds; null for checks without one.';
COMMENT ON COLUMN report.preflight_checks.bandwidth_gbps IS 'The bus bandwidth that it measured, in GB/s (10^9 bytes); null if none.';
COMMENT ON COLUMN report.preflight_checks.threshold_gbps IS 'The bus bandwidth that it had to reach, in GB/s; null if none.';
COMMENT ON COLUMN report.preflight_checks.first_at IS 'When it was first observed, perhaps as waiting.';
