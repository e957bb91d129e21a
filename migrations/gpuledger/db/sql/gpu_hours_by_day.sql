CREATE VIEW report.gpu_hours_by_day AS
WITH change AS NOT MATERIALIZED (
    SELECT * FROM report.allocation_changes()
),
-- Of few: what lasts, or lasted for many days.
running AS (
    SELECT
        day, node, owner, class,
        sum(sum(held)) OVER holder_in_time AS held,
        lead(day) OVER holder_in_time AS next_day
    FROM change
    WHERE held <> 0
    GROUP BY day, node, owner, class
    WINDOW holder_in_time AS (PARTITION BY node, owner, class ORDER BY day)
),
total AS (
    SELECT day, node, owner, class, held_us
    FROM change
    UNION ALL
    SELECT later.day, node, owner, class, held * 86400000000
    FROM running
    CROSS JOIN LATERAL generate_series(running.day + interval '24 hours', next_day, interval '24 hours') AS later (day)
    WHERE held <> 0
)
SELECT (day AT TIME ZONE 'UTC')::date AS day, node, owner, class, round(sum(held_us) / 3600000000000, 6) AS gpu_hours
FROM total
GROUP BY total.day, node, owner, class
HAVING sum(held_us) <> 0
ORDER BY day, node, owner, class;

COMMENT ON VIEW report.gpu_hours_by_day IS 'GPU-hours that workloads held on each day (UTC), by node, owner and class of service; a day without any has no row.';
COMMENT ON COLUMN report.gpu_hours_by_day.day IS 'The day, in UTC.';
COMMENT ON COLUMN report.gpu_hours_by_day.node IS 'The node to which the workloads were scheduled; null if not recorded.';
COMMENT ON COLUMN report.gpu_hours_by_day.owner IS 'Who submitted them; null if not recorded.';
COMMENT ON COLUMN report.gpu_hours_by_day.class IS 'Their class of service; null if not recorded.';
COMMENT ON COLUMN report.gpu_hours_by_day.gpu_hours IS 'GPUs times hours of the day, fractions of a GPU as fractions; an allocation that is still held counts to the end of its source''s data or to now.';
