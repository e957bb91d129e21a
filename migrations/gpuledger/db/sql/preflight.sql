CREATE VIEW report.preflight AS
WITH ended AS (
    SELECT
        check_name,
        coalesce(node, 'unknown') AS node,
        pod,
        outcome,
        duration_s,
        gang_wait_s,
        bandwidth_gbps
    FROM report.preflight_checks
    WHERE state = 'ended'
)
SELECT
    CASE
        WHEN grouping(check_name) = 0 AND grouping(node) = 0 THEN 'check on node'
        WHEN grouping(check_name) = 0 THEN 'check'
        WHEN grouping(node) = 0 THEN 'node'
        ELSE 'all'
    END AS per,
    CASE WHEN grouping(check_name) = 0 THEN check_name END AS check_name,
    CASE WHEN grouping(node) = 0 THEN node END AS node,
    count(*) AS attempts,
    count(*) FILTER (WHERE outcome = 'passed') AS passed,
    count(*) FILTER (WHERE outcome = 'failed') AS failed,
    count(*) FILTER (WHERE outcome = 'skipped') AS skipped,
    count(*) FILTER (WHERE outcome NOT IN ('passed', 'failed', 'skipped')) AS inconclusive,
    round(
        count(*) FILTER (WHERE outcome = 'passed')::numeric / nullif(count(*) FILTER (WHERE outcome IN ('passed', 'failed')), 0),
        4
    ) AS pass_rate,
    round((percentile_cont(0.5) WITHIN GROUP (ORDER BY duration_s::double precision))::numeric, 3) AS p50_s,
    round((percentile_cont(0.9) WITHIN GROUP (ORDER BY duration_s::double precision))::numeric, 3) AS p90_s,
    round((percentile_cont(0.99) WITHIN GROUP (ORDER BY duration_s::double precision))::numeric, 3) AS p99_s,
    max(duration_s) AS slowest_s,
    (array_agg(pod ORDER BY duration_s DESC NULLS LAST, pod))[1] AS slowest_pod,
    max(gang_wait_s) AS longest_gang_wait_s,
    min(bandwidth_gbps) AS lowest_bandwidth_gbps
FROM ended
GROUP BY GROUPING SETS ((), (check_name), (node), (check_name, node))
HAVING count(*) > 0
ORDER BY 1, 2, 3;

COMMENT ON VIEW report.preflight IS
    'How many attempts at preflight checks passed and how long they took: of all, per check, per node, and per check on a node.';
COMMENT ON COLUMN report.preflight.per IS 'What the row is about: all, check, node or check on node.';
COMMENT ON COLUMN report.preflight.check_name IS 'The check; null in rows about several.';
COMMENT ON COLUMN report.preflight.node IS 'The node; null in rows about several.';
COMMENT ON COLUMN report.preflight.attempts IS 'Number of attempts that ended.';
COMMENT ON COLUMN report.preflight.passed IS 'How many of them passed.';
COMMENT ON COLUMN report.preflight.failed IS 'How many of them found something that fails.';
COMMENT ON COLUMN report.preflight.skipped IS 'How many of them had nothing to test.';
COMMENT ON COLUMN report.preflight.inconclusive IS
    'How many of them blame no hardware: wrong configuration, a gang that was not complete in time, no report.';
COMMENT ON COLUMN report.preflight.pass_rate IS 'passed as a part of passed and failed; null if both are 0.';
COMMENT ON COLUMN report.preflight.p50_s IS 'The median duration in seconds.';
COMMENT ON COLUMN report.preflight.p90_s IS 'The duration that nine in ten did not exceed, in seconds.';
COMMENT ON COLUMN report.preflight.p99_s IS 'The duration that 99 in 100 did not exceed, in seconds.';
COMMENT ON COLUMN report.preflight.slowest_s IS 'The longest duration in seconds.';
COMMENT ON COLUMN report.preflight.slowest_pod IS 'The pod of the longest one, as NAMESPACE/NAME.';
COMMENT ON COLUMN report.preflight.longest_gang_wait_s IS 'The longest wait for a gang, in seconds; null if none waited.';
COMMENT ON COLUMN report.preflight.lowest_bandwidth_gbps IS 'The lowest bus bandwidth in GB/s; null if none was measured.';
