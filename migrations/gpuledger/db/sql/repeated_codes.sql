CREATE VIEW report.repeated_codes AS
WITH coded AS (
    SELECT checked.node, reported.entity, reported.device, code, reported.reported_at, reported.reports
    FROM gpuledger_live.health_report AS reported
    JOIN gpuledger_live.health_check AS checked ON checked.scope = reported.scope
    CROSS JOIN LATERAL unnest(string_to_array(reported.codes, ',')) AS code
    WHERE NOT reported.healthy
),
counted AS (
    SELECT
        coded.*,
        sum(coded.reports) OVER (
            PARTITION BY coded.node, coded.entity, coded.code
            ORDER BY coded.reported_at
            RANGE BETWEEN interval '24 hours' PRECEDING AND CURRENT ROW
        ) AS in_day
    FROM coded
)
SELECT
    node,
    entity,
    max(device) AS device,
    code,
    sum(reports)::bigint AS reports,
    max(in_day)::bigint AS reports_in_day,
    min(reported_at) AS first_at,
    max(reported_at) AS last_at
FROM counted
GROUP BY node, entity, code
HAVING max(in_day) >= report.repeated_min()
ORDER BY reports_in_day DESC, node, entity, code;

COMMENT ON VIEW report.repeated_codes IS
    'Error codes that monitors reported of one entity at least report.repeated_min() times within 24 hours, most first.';
COMMENT ON COLUMN report.repeated_codes.node IS 'The node.';
COMMENT ON COLUMN report.repeated_codes.entity IS 'The entity, as in incidents.';
COMMENT ON COLUMN report.repeated_codes.device IS 'The UUID of the card; null if the entity is none.';
COMMENT ON COLUMN report.repeated_codes.code IS 'The error code.';
COMMENT ON COLUMN report.repeated_codes.reports IS 'Number of unhealthy reports with it.';
COMMENT ON COLUMN report.repeated_codes.reports_in_day IS 'The most of them within 24 hours.';
COMMENT ON COLUMN report.repeated_codes.first_at IS 'When the first one was made.';
COMMENT ON COLUMN report.repeated_codes.last_at IS 'When the last one was made.';
