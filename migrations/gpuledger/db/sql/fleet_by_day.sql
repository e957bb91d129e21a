CREATE VIEW report.fleet_by_day AS
WITH presence AS (
    -- A device in two slots is one device: its lives are merged into spans of being anywhere.
    SELECT unnest(range_agg(tstzrange(valid_from, valid_to))) AS span
    FROM gpuledger_live.installation
    GROUP BY device
),
change AS (
    SELECT lower(span) AS at, 1 AS in_service, 0 AS inserted, 0 AS removed, 0 AS failures FROM presence
    UNION ALL
    SELECT upper(span), -1, 0, 0, 0 FROM presence WHERE NOT upper_inf(span)
    UNION ALL
    SELECT valid_from, 0, 1, 0, 0 FROM gpuledger_live.installation
    UNION ALL
    SELECT valid_to, 0, 0, 1, 0 FROM gpuledger_live.installation WHERE valid_to IS NOT NULL
    UNION ALL
    SELECT failed_at, 0, 0, 0, 1 FROM gpuledger_live.failure
),
daily AS (
    SELECT
        date_trunc('day', at AT TIME ZONE 'UTC') AS day,
        sum(in_service) AS in_service,
        sum(inserted) AS inserted,
        sum(removed) AS removed,
        sum(failures) AS failures
    FROM change
    GROUP BY 1
),
span AS (
    -- One event with a clock far in the future must not make a row for every day until then.
    SELECT
        min(day) AS first_day,
        least(
            greatest(max(day), (SELECT max(counted_to) AT TIME ZONE 'UTC' FROM report.lifetimes)),
            now() AT TIME ZONE 'UTC'
        ) AS last_day
    FROM daily
)
SELECT
    day::date AS day,
    (sum(coalesce(daily.in_service, 0)) OVER (ORDER BY day))::bigint AS in_service,
    coalesce(daily.inserted, 0)::bigint AS inserted,
    coalesce(daily.removed, 0)::bigint AS removed,
    coalesce(daily.failures, 0)::bigint AS failures
FROM span
CROSS JOIN LATERAL generate_series(span.first_day, span.last_day, interval '1 day') AS day
LEFT JOIN daily USING (day)
ORDER BY day;

COMMENT ON VIEW report.fleet_by_day IS
    'One row per day (UTC) from the first insertion, removal or failure to the end of the data, or today while a source continues; never beyond today.';
COMMENT ON COLUMN report.fleet_by_day.day IS 'The day, in UTC.';
COMMENT ON COLUMN report.fleet_by_day.in_service IS 'Devices in any slot at the end of the day, just before 00:00 UTC of the next one.';
COMMENT ON COLUMN report.fleet_by_day.inserted IS 'Lives that began on the day.';
COMMENT ON COLUMN report.fleet_by_day.removed IS 'Lives that ended on the day.';
COMMENT ON COLUMN report.fleet_by_day.failures IS 'Failures on the day.';
