CREATE VIEW report.container_hours_by_day AS
WITH change AS NOT MATERIALIZED (
    SELECT * FROM report.container_changes()
),
-- Of few: what lasts, or lasted for many days.
running AS (
    SELECT
        day, node, namespace, resource, driver, pool,
        sum(sum(held)) OVER holder_in_time AS held,
        lead(day) OVER holder_in_time AS next_day
    FROM change
    WHERE held <> 0
    GROUP BY day, node, namespace, resource, driver, pool
    WINDOW holder_in_time AS (PARTITION BY node, namespace, resource, driver, pool ORDER BY day)
),
total AS (
    SELECT day, node, namespace, resource, driver, pool, held_us
    FROM change
    UNION ALL
    SELECT later.day, node, namespace, resource, driver, pool, held * 86400000000
    FROM running
    CROSS JOIN LATERAL generate_series(running.day + interval '24 hours', next_day, interval '24 hours') AS later (day)
    WHERE held <> 0
)
SELECT (day AT TIME ZONE 'UTC')::date AS day, node, namespace, resource, driver, pool, round(sum(held_us) / 3600000000, 6) AS hours
FROM total
GROUP BY total.day, node, namespace, resource, driver, pool
HAVING sum(held_us) <> 0
ORDER BY day, node, namespace, resource, driver, pool;

COMMENT ON VIEW report.container_hours_by_day IS 'Hours that containers held units of devices on each day (UTC), by node, namespace and what they are units of; a day without any has no row.';
COMMENT ON COLUMN report.container_hours_by_day.day IS 'The day, in UTC.';
COMMENT ON COLUMN report.container_hours_by_day.node IS 'The node.';
COMMENT ON COLUMN report.container_hours_by_day.namespace IS 'The pods'' namespace.';
COMMENT ON COLUMN report.container_hours_by_day.resource IS 'The extended resource that the containers requested; null for devices of claims.';
COMMENT ON COLUMN report.container_hours_by_day.driver IS 'The driver of the claims'' devices; null for an extended resource.';
COMMENT ON COLUMN report.container_hours_by_day.pool IS 'The pool of the claims'' devices; null for an extended resource.';
COMMENT ON COLUMN report.container_hours_by_day.hours IS 'Hours of the day that containers held units of devices, summed over units; one that is still held counts to now.';
