CREATE FUNCTION report.preflight_checks_at(at timestamptz) RETURNS SETOF gpuledger_live.preflight_check
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        attempt.uid,
        attempt.check_name,
        attempt.attempt,
        attempt.number,
        attempt.pod,
        attempt.namespace,
        attempt.node,
        attempt.gang,
        CASE
            WHEN attempt.end_at <= at THEN attempt.state
            WHEN attempt.running_at <= at THEN 'running'
            ELSE 'waiting'
        END,
        CASE
            WHEN attempt.end_at <= at THEN attempt.outcome
            WHEN attempt.over_at <= at THEN CASE WHEN attempt.running_at <= at THEN 'unknown' ELSE 'not-run' END
        END,
        CASE WHEN attempt.end_at <= at THEN attempt.exit_code END,
        CASE WHEN attempt.end_at <= at THEN attempt.reason END,
        CASE WHEN attempt.end_at <= at THEN attempt.codes ELSE '' END,
        CASE WHEN attempt.end_at <= at THEN attempt.message ELSE '' END,
        CASE WHEN attempt.end_at <= at OR attempt.running_at <= at THEN attempt.started_at END,
        CASE WHEN attempt.end_at <= at THEN attempt.ended_at END,
        CASE WHEN attempt.end_at <= at THEN attempt.duration_us END,
        CASE WHEN attempt.end_at <= at THEN attempt.gang_wait_us END,
        CASE WHEN attempt.end_at <= at THEN attempt.bandwidth_bytes_s END,
        CASE WHEN attempt.end_at <= at THEN attempt.threshold_bytes_s END,
        attempt.first_at,
        CASE WHEN attempt.running_at <= at THEN attempt.running_at END,
        CASE WHEN attempt.end_at <= at THEN attempt.end_at END,
        least(attempt.observed_at, at),
        attempt.position,
        CASE WHEN attempt.over_at <= at THEN attempt.over_at END,
        CASE WHEN attempt.gone_at <= at THEN attempt.gone_at END
    FROM gpuledger_live.preflight_check AS attempt
    WHERE report.is_kept('preflight_check', at) AND attempt.first_at <= at;
END;

COMMENT ON FUNCTION report.preflight_checks_at(timestamptz) IS
    'Attempts at preflight checks that had been observed by then, as far as they were: the columns of gpuledger_live.preflight_check.';
