CREATE VIEW report.exhausted AS
WITH known AS (
    SELECT
        pool_availability.*,
        total > 0 AND available = 0 AS exhausted,
        lag(valid_to) OVER view_in_time IS DISTINCT FROM valid_from
            OR NOT lag(total > 0 AND available = 0) OVER view_in_time AS begins
    FROM gpuledger_live.pool_availability
    WINDOW view_in_time AS (PARTITION BY driver, pool, node ORDER BY valid_from)
),
numbered AS (
    SELECT known.*, count(*) FILTER (WHERE begins) OVER (PARTITION BY driver, pool, node ORDER BY valid_from) AS spell
    FROM known
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
    'When pools had no device left that nobody had and that could be had: one row from the last one gone to the next one free.';
COMMENT ON COLUMN report.exhausted.driver IS 'The driver.';
COMMENT ON COLUMN report.exhausted.pool IS 'Its pool.';
COMMENT ON COLUMN report.exhausted.node IS
    'The node whose own slices these are; null for slices of no single node.';
COMMENT ON COLUMN report.exhausted.valid_from IS 'Since when.';
COMMENT ON COLUMN report.exhausted.valid_to IS 'Until when; null while it still is.';
COMMENT ON COLUMN report.exhausted.hours IS 'How long, in hours; what still goes on counts to now.';
COMMENT ON COLUMN report.exhausted.total IS 'Devices that the slices published, at the most.';
COMMENT ON COLUMN report.exhausted.allocated IS
    'Devices that somebody had, at the most; where it is less than total, others were missing for taints, counters or the pool.';
COMMENT ON COLUMN report.exhausted.partial IS
    'Devices of which shares could still be had, at the least; 0 where at times there was nothing at all.';
