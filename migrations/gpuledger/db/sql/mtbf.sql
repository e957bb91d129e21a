CREATE VIEW report.mtbf AS
WITH life AS (
    SELECT
        report.location_of(life.slot, slot.node) AS location,
        life.started AT TIME ZONE 'UTC' AS started,
        life.counted_to AT TIME ZONE 'UTC' AS ended
    FROM report.lifetimes AS life
    LEFT JOIN gpuledger_live.slot AS slot ON slot.slot = life.slot
),
change AS (
    SELECT location, started AS at, 1 AS sign FROM life
    UNION ALL
    SELECT location, ended, -1 FROM life
),
changed AS (
    -- Whoever comes counts for the rest of that quarter and all of each later one; whoever goes takes it back.
    SELECT
        location,
        date_trunc('quarter', at) AS quarter,
        sum(sign) AS devices,
        sum(sign * extract(epoch FROM date_trunc('quarter', at) + interval '3 months' - at)) AS rest_s
    FROM change
    GROUP BY 1, 2
),
span AS (
    SELECT location, min(quarter) AS first_quarter, max(quarter) AS last_quarter FROM changed GROUP BY location
),
counted AS (
    SELECT
        location,
        quarter,
        coalesce(changed.rest_s, 0) + extract(epoch FROM quarter + interval '3 months' - quarter) * coalesce(
            sum(changed.devices) OVER (
                PARTITION BY location ORDER BY quarter ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ),
            0
        ) AS gpu_s
    FROM span
    CROSS JOIN LATERAL generate_series(first_quarter, last_quarter, interval '3 months') AS quarter
    LEFT JOIN changed USING (location, quarter)
),
lived AS (
    SELECT quarter, location, gpu_s FROM counted WHERE gpu_s > 0
),
placed AS (
    SELECT
        failure.failed_at,
        coalesce(
            failure.slot,
            (
                SELECT installation.slot
                FROM gpuledger_live.installation AS installation
                WHERE installation.device = failure.device
                    AND installation.valid_from <= failure.failed_at
                    AND (installation.valid_to IS NULL OR installation.valid_to >= failure.failed_at)
                ORDER BY installation.valid_from DESC, installation.slot DESC
                LIMIT 1
            )
        ) AS slot
    FROM gpuledger_live.failure AS failure
),
failed AS (
    SELECT
        date_trunc('quarter', placed.failed_at AT TIME ZONE 'UTC') AS quarter,
        coalesce(report.location_of(placed.slot, slot.node), 'unknown') AS location,
        count(*) AS failures
    FROM placed
    LEFT JOIN gpuledger_live.slot AS slot ON slot.slot = placed.slot
    GROUP BY 1, 2
)
SELECT
    quarter::date AS quarter,
    location,
    round(coalesce(lived.gpu_s, 0) / 86400, 3) AS gpu_days,
    coalesce(failed.failures, 0) AS failures,
    round(coalesce(lived.gpu_s, 0) / 3600 / failed.failures, 1) AS mtbf_hours
FROM lived
FULL JOIN failed USING (quarter, location)
ORDER BY quarter, location;

COMMENT ON VIEW report.mtbf IS 'Mean time between failures, per quarter (UTC) and location.';
COMMENT ON COLUMN report.mtbf.quarter IS 'The first day of the quarter, in UTC.';
COMMENT ON COLUMN report.mtbf.location IS
    'The cabinet for slots with Cray names, otherwise the slot''s node, otherwise the slot; unknown if a failure has no slot.';
COMMENT ON COLUMN report.mtbf.gpu_days IS 'Days that devices were in service there within the quarter, summed over devices.';
COMMENT ON COLUMN report.mtbf.failures IS 'Failures there within the quarter, of every kind.';
COMMENT ON COLUMN report.mtbf.mtbf_hours IS 'GPU-hours per failure; null if there was none.';
