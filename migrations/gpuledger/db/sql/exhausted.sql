CREATE VIEW report.exhausted AS
WITH sample AS (
    SELECT
        pool_availability.*,
        total > 0 AND available = 0 AS exhausted,
        lag(valid_to) OVER view_in_time IS DISTINCT FROM valid_from
            OR NOT lag(total > 0 AND available = 0) OVER view_in_time AS begins
    FROM gpuledger_live.pool_availability
    WINDOW view_in_time AS (PARTITION BY driver, pool, node ORDER BY valid_from)
),
numbered AS (
    SELECT sample.*, count(*) FILTER (WHERE begins) OVER (PARTITION BY driver, pool, node ORDER BY valid_from) AS spell
    FROM sample
    WHERE exhausted
),
spell AS (
    SELECT
        driver, pool, node,
        min(valid_from) AS valid_from,
        CASE WHEN bool_and(valid_to IS NOT NULL) THEN max(valid_to) END AS valid_to,
        max(total) AS total,
        max(allocated) AS allocated,
        min(partial) AS partial
    FROM numbered
    GROUP BY driver, pool, node, spell
)
SELECT
    driver,
    pool,
    nullif(node, '') AS node,
    valid_from,
    valid_to,
    trim_scale(round(extract(epoch FROM coalesce(valid_to, greatest(valid_from, now())) - valid_from) / 3600, 9)) AS hours,
    total,
    allocated,
    partial
FROM spell
ORDER BY valid_from, driver, pool, spell.node;

COMMENT ON VIEW report.exhausted IS
    'When pools had no available device: one row from the moment the last one was taken to the moment the next one was free.';
COMMENT ON COLUMN report.exhausted.driver IS 'The driver.';
COMMENT ON COLUMN report.exhausted.pool IS 'Its pool.';
COMMENT ON COLUMN report.exhausted.node IS
    'The node that the slices belong to; null for slices of no single node.';
COMMENT ON COLUMN report.exhausted.valid_from IS 'Since when.';
COMMENT ON COLUMN report.exhausted.valid_to IS 'Until when; null while it lasts.';
COMMENT ON COLUMN report.exhausted.hours IS 'Duration in hours; a period that continues counts to now.';
COMMENT ON COLUMN report.exhausted.total IS 'Maximum of devices that the slices published.';
COMMENT ON COLUMN report.exhausted.allocated IS
    'Maximum of devices that claims held; if it is below total, taints, counters or the pool blocked the others.';
COMMENT ON COLUMN report.exhausted.partial IS
    'Minimum of devices with shares that a claim could still get; 0 if at times there were none.';
