CREATE VIEW report.preflight_gangs AS
WITH waits AS (
    -- One pass over the attempts for all gangs: a look-up for each would need an index that nothing else does.
    SELECT
        gang.gang,
        gang.began_at,
        count(DISTINCT attempt.uid) AS pods,
        max(attempt.gang_wait_us) AS gang_wait_us
    FROM gpuledger_live.preflight_gang AS gang
    INNER JOIN gpuledger_live.preflight_check AS attempt ON gang.gang = attempt.gang
    WHERE attempt.gang_wait_us IS NOT NULL
        AND attempt.ended_at >= gang.began_at
        AND (gang.dissolved_at IS NULL OR attempt.started_at <= gang.dissolved_at)
    GROUP BY gang.gang, gang.began_at
)
SELECT
    gang.namespace,
    gang.gang,
    gang.state,
    gang.expected,
    gang.found,
    round(gang.waited_us / 1000000.0, 3) AS waited_s,
    gang.began_at,
    gang.completed_at,
    gang.timed_out_at,
    gang.dissolved_at,
    gang.config_map,
    gang.source,
    gang.reason,
    gang.message,
    coalesce(waits.pods, 0) AS pods_waited,
    round(waits.gang_wait_us / 1000000.0, 3) AS longest_wait_s
FROM gpuledger_live.preflight_gang AS gang
LEFT JOIN waits ON gang.gang = waits.gang AND gang.began_at = waits.began_at
ORDER BY gang.began_at DESC, gang.gang;

COMMENT ON VIEW report.preflight_gangs IS
    'One row per gang that goes through preflight checks together, until it is dissolved. The latest first.';
COMMENT ON COLUMN report.preflight_gangs.namespace IS 'The namespace of the gang.';
COMMENT ON COLUMN report.preflight_gangs.gang IS 'The gang, as NAMESPACE/ID.';
COMMENT ON COLUMN report.preflight_gangs.state IS 'The latest that came of it: forming, complete, timed-out or not-configured.';
COMMENT ON COLUMN report.preflight_gangs.expected IS 'How many pods it has, by its source; null before it was configured.';
COMMENT ON COLUMN report.preflight_gangs.found IS 'How many of them had an address; null before it was configured.';
COMMENT ON COLUMN report.preflight_gangs.waited_s IS
    'Seconds from its first pod with an address until it was complete, or until it was given up; null before.';
COMMENT ON COLUMN report.preflight_gangs.began_at IS 'When the service first recorded something of it.';
COMMENT ON COLUMN report.preflight_gangs.completed_at IS 'When it was complete; null if it never was.';
COMMENT ON COLUMN report.preflight_gangs.timed_out_at IS 'When it was last not complete in time; null if it never was.';
COMMENT ON COLUMN report.preflight_gangs.dissolved_at IS 'When none of its pods was left; null while there are any.';
COMMENT ON COLUMN report.preflight_gangs.config_map IS 'Its ConfigMap; null before it was configured.';
COMMENT ON COLUMN report.preflight_gangs.source IS 'What says which pods belong to it; null before it was configured.';
COMMENT ON COLUMN report.preflight_gangs.reason IS 'Why it could not be configured; null unless that is the latest.';
COMMENT ON COLUMN report.preflight_gangs.message IS 'The same in a sentence; empty if there is none.';
COMMENT ON COLUMN report.preflight_gangs.pods_waited IS 'How many of its pods reported how long they waited for it.';
COMMENT ON COLUMN report.preflight_gangs.longest_wait_s IS 'The longest of these waits, in seconds; null if none is reported.';
