CREATE VIEW report.dra_gpu_hours AS
WITH held AS (
    SELECT
        claim, driver, pool, device, admin_access, valid_from,
        coalesce(valid_to, greatest(valid_from, now())) AS valid_to
    FROM gpuledger_live.device_allocation
),
edge AS (
    SELECT
        held.claim, held.driver, held.pool, held.device, edge.at, edge.change,
        extract(epoch FROM lead(edge.at) OVER device_in_time - edge.at)
            / nullif(sum(edge.change) OVER device_in_time, 0) AS portion_s
    FROM held
    CROSS JOIN LATERAL (VALUES (held.valid_from, 1), (held.valid_to, -1)) AS edge (at, change)
    WHERE NOT held.admin_access
    WINDOW device_in_time AS (PARTITION BY held.driver, held.pool, held.device ORDER BY edge.at)
),
-- What one holder would have had that was there from the beginning; what lies between two moments of it is what any
-- holder had between them: so the ends count, and the beginnings are taken off.
passed AS (
    SELECT
        claim,
        -change * coalesce(
            sum(portion_s) OVER (
                PARTITION BY driver, pool, device ORDER BY at GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ),
            0
        ) AS device_s
    FROM edge
)
SELECT
    split_part(had.claim, '/', 1) AS namespace,
    split_part(had.claim, '/', 2) AS claim,
    had.devices,
    round(coalesce(shared.device_s, 0) / 3600, 6) AS gpu_hours,
    round(had.admin_s / 3600, 6) AS admin_hours
FROM (
    SELECT
        claim,
        count(DISTINCT (driver, pool, device)) AS devices,
        coalesce(sum(extract(epoch FROM valid_to - valid_from)) FILTER (WHERE admin_access), 0) AS admin_s
    FROM held
    GROUP BY claim
) AS had
LEFT JOIN (SELECT claim, sum(device_s) AS device_s FROM passed GROUP BY claim) AS shared ON shared.claim = had.claim
ORDER BY gpu_hours DESC, namespace, claim;

COMMENT ON VIEW report.dra_gpu_hours IS
    'Device-hours that claims held, by namespace and claim. Claims that share a device divide each hour of it evenly.';
COMMENT ON COLUMN report.dra_gpu_hours.namespace IS 'The claims'' namespace.';
COMMENT ON COLUMN report.dra_gpu_hours.claim IS 'Their name; claims that had the same name one after another count together.';
COMMENT ON COLUMN report.dra_gpu_hours.devices IS 'How many different devices it holds or held, including those with admin access.';
COMMENT ON COLUMN report.dra_gpu_hours.gpu_hours IS
    'Device-hours; each of n shares held at the same time counts as 1/n. An allocation that is still held counts to now.';
COMMENT ON COLUMN report.dra_gpu_hours.admin_hours IS
    'Hours of admin access, summed over devices; it takes nothing from others and is not in gpu_hours.';
