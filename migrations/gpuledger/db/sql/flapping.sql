CREATE VIEW report.flapping AS
WITH counted AS (
    SELECT
        incident.*,
        count(*) OVER (
            PARTITION BY incident.scope, incident.entity
            ORDER BY incident.opened_at
            RANGE BETWEEN interval '24 hours' PRECEDING AND CURRENT ROW
        ) AS in_day
    FROM gpuledger_live.incident AS incident
)
SELECT
    node,
    monitor,
    check_name,
    entity,
    max(device) AS device,
    count(*) AS incidents,
    max(in_day) AS incidents_in_day,
    min(opened_at) AS first_at,
    max(opened_at) AS last_at
FROM counted
GROUP BY node, monitor, check_name, entity
HAVING max(in_day) >= report.flapping_min()
ORDER BY incidents_in_day DESC, node, monitor, check_name, entity;

COMMENT ON VIEW report.flapping IS
    'What became unhealthy at least report.flapping_min() times within 24 hours, most first.';
COMMENT ON COLUMN report.flapping.node IS 'The node.';
COMMENT ON COLUMN report.flapping.monitor IS 'The monitor.';
COMMENT ON COLUMN report.flapping.check_name IS 'The check of the monitor.';
COMMENT ON COLUMN report.flapping.entity IS 'The entity, as in incidents.';
COMMENT ON COLUMN report.flapping.device IS 'The UUID of the card; null if the entity is none.';
COMMENT ON COLUMN report.flapping.incidents IS 'Number of incidents.';
COMMENT ON COLUMN report.flapping.incidents_in_day IS 'The most that began within 24 hours.';
COMMENT ON COLUMN report.flapping.first_at IS 'When the first one began.';
COMMENT ON COLUMN report.flapping.last_at IS 'When the last one began.';
