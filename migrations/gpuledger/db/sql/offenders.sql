CREATE VIEW report.offenders AS
WITH failed AS (
    SELECT device, kind, count(*) AS times, min(failed_at) AS first_at, max(failed_at) AS last_at
    FROM gpuledger_live.failure
    GROUP BY device, kind
),
offender AS (
    SELECT
        device,
        sum(times)::bigint AS failures,
        min(first_at) AS first_failed_at,
        max(last_at) AS last_failed_at,
        jsonb_object_agg(kind, times) AS kinds
    FROM failed
    GROUP BY device
)
SELECT
    offender.device,
    offender.failures,
    coalesce(installation.lives, 0) AS lives,
    coalesce(installation.slots, 0) AS slots,
    offender.first_failed_at,
    offender.last_failed_at,
    offender.kinds,
    device.state,
    device.slot
FROM offender
JOIN gpuledger_live.device AS device ON device.device = offender.device
LEFT JOIN (
    SELECT device, count(*) AS lives, count(DISTINCT slot) AS slots
    FROM gpuledger_live.installation
    GROUP BY device
) AS installation ON installation.device = offender.device
ORDER BY offender.failures DESC, offender.device;

COMMENT ON VIEW report.offenders IS 'Devices that failed, most failures first.';
COMMENT ON COLUMN report.offenders.device IS 'The device.';
COMMENT ON COLUMN report.offenders.failures IS 'Number of failures.';
COMMENT ON COLUMN report.offenders.lives IS 'Number of its lives.';
COMMENT ON COLUMN report.offenders.slots IS 'Number of different slots that it was in.';
COMMENT ON COLUMN report.offenders.first_failed_at IS 'When it first failed.';
COMMENT ON COLUMN report.offenders.last_failed_at IS 'When it last failed.';
COMMENT ON COLUMN report.offenders.kinds IS 'Its failures by kind.';
COMMENT ON COLUMN report.offenders.state IS 'Its state now: InService, Removed, Retired or Unplaced.';
COMMENT ON COLUMN report.offenders.slot IS 'The slot that it is in now; null if none.';
