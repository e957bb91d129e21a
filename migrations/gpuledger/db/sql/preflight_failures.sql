CREATE VIEW report.preflight_failures AS
SELECT
    coalesce(attempt.node, 'unknown') AS node,
    attempt.check_name,
    attempt.outcome,
    code.code,
    count(*) AS attempts,
    count(DISTINCT attempt.uid) AS pods,
    min(coalesce(attempt.ended_at, attempt.first_at)) AS first_at,
    max(coalesce(attempt.ended_at, attempt.first_at)) AS last_at,
    (array_agg(attempt.pod ORDER BY coalesce(attempt.ended_at, attempt.first_at) DESC, attempt.pod))[1] AS last_pod,
    (array_agg(attempt.message ORDER BY coalesce(attempt.ended_at, attempt.first_at) DESC, attempt.pod))[1]
        AS last_message
FROM report.preflight_checks AS attempt
CROSS JOIN LATERAL unnest(
    CASE attempt.codes WHEN '' THEN ARRAY[''] ELSE string_to_array(attempt.codes, ',') END
) AS code (code)
WHERE attempt.state = 'ended' AND attempt.outcome NOT IN ('passed', 'skipped')
GROUP BY 1, 2, 3, 4
ORDER BY attempts DESC, node, check_name, outcome, code;

COMMENT ON VIEW report.preflight_failures IS
    'Attempts at preflight checks that did not pass, by node, check, outcome and error code. The most frequent first.';
COMMENT ON COLUMN report.preflight_failures.node IS 'The node.';
COMMENT ON COLUMN report.preflight_failures.check_name IS 'The check.';
COMMENT ON COLUMN report.preflight_failures.outcome IS 'failed, config-error, gang-timeout or not-reported.';
COMMENT ON COLUMN report.preflight_failures.code IS 'The error code; empty for attempts that report none.';
COMMENT ON COLUMN report.preflight_failures.attempts IS 'Number of attempts; one with several codes counts for each.';
COMMENT ON COLUMN report.preflight_failures.pods IS 'Number of different pods.';
COMMENT ON COLUMN report.preflight_failures.first_at IS 'When the first one ended.';
COMMENT ON COLUMN report.preflight_failures.last_at IS 'When the last one ended.';
COMMENT ON COLUMN report.preflight_failures.last_pod IS 'The pod of the last one, as NAMESPACE/NAME.';
COMMENT ON COLUMN report.preflight_failures.last_message IS 'What the check said then.';
