CREATE FUNCTION report.failures_at(at timestamptz) RETURNS SETOF gpuledger_live.failure
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        failure.event_id,
        failure.device,
        failure.slot,
        failure.kind,
        failure.failed_at,
        failure.message,
        failure.source,
        failure.epoch,
        failure.number
    FROM gpuledger_live.failure AS failure
    WHERE failure.failed_at <= at;
END;

COMMENT ON FUNCTION report.failures_at(timestamptz) IS
    'Failures up to then: the columns of gpuledger_live.failure.';
