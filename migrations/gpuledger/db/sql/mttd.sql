CREATE VIEW report.mttd AS
WITH measured AS (
    SELECT
        to_char(opened_at AT TIME ZONE 'UTC', 'YYYY-MM') AS month,
        node,
        coalesce(model, 'unknown') AS model,
        check_name,
        detected_after_s AS seconds
    FROM report.incidents
)
SELECT
    CASE
        WHEN grouping(month) = 0 THEN 'month'
        WHEN grouping(node) = 0 THEN 'node'
        WHEN grouping(model) = 0 THEN 'model'
        WHEN grouping(check_name) = 0 THEN 'check'
        ELSE 'all'
    END AS per,
    coalesce(month, node, model, check_name, 'all') AS value,
    count(*) AS incidents,
    round(avg(seconds), 3) AS mttd_s,
    round((percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds))::numeric, 3) AS median_s,
    max(seconds) AS longest_s
FROM measured
GROUP BY GROUPING SETS ((), (month), (node), (model), (check_name))
HAVING count(*) > 0
ORDER BY 1, 2;

COMMENT ON VIEW report.mttd IS
    'Mean time to detect: from the first unhealthy report of an incident until the ledger got it.';
COMMENT ON COLUMN report.mttd.per IS 'What the row is about: all, check, model, month or node.';
COMMENT ON COLUMN report.mttd.value IS 'Which check, model, month (of the first report, in UTC) or node.';
COMMENT ON COLUMN report.mttd.incidents IS 'Number of incidents that are measured.';
COMMENT ON COLUMN report.mttd.mttd_s IS 'The mean in seconds.';
COMMENT ON COLUMN report.mttd.median_s IS 'The median in seconds.';
COMMENT ON COLUMN report.mttd.longest_s IS 'The longest in seconds.';
