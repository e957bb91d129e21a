CREATE FUNCTION report.preflight_gangs_at(at timestamptz) RETURNS SETOF gpuledger_live.preflight_gang
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        gang.gang,
        gang.began_at,
        gang.namespace,
        coalesce(until.state, gang.state),
        CASE WHEN gang.last_at <= at THEN gang.config_map ELSE until.config_map END,
        CASE WHEN gang.last_at <= at THEN gang.source ELSE until.source END,
        CASE WHEN gang.last_at <= at THEN gang.expected ELSE until.expected END,
        CASE WHEN gang.last_at <= at THEN gang.found ELSE until.found END,
        CASE WHEN gang.last_at <= at THEN gang.waited_us ELSE until.waited_us END,
        CASE WHEN gang.completed_at <= at THEN gang.completed_at END,
        CASE WHEN gang.last_at <= at THEN gang.timed_out_at ELSE until.timed_out_at END,
        CASE WHEN gang.last_at <= at THEN gang.reason ELSE until.reason END,
        CASE WHEN gang.last_at <= at THEN gang.message ELSE coalesce(until.message, '') END,
        CASE WHEN gang.dissolved_at <= at THEN gang.dissolved_at END,
        gang.removed AND gang.dissolved_at <= at,
        CASE WHEN gang.last_at <= at THEN gang.last_at ELSE until.last_at END,
        CASE WHEN gang.last_at <= at THEN gang.last_kind ELSE until.last_kind END,
        gang.life,
        CASE WHEN gang.last_at <= at THEN gang.events ELSE gang.events - until.later END
    FROM gpuledger_live.preflight_gang AS gang
    LEFT JOIN LATERAL (
        -- What had come of it up to then, where more was later.
        SELECT
            (array_agg(
                CASE event.kind
                    WHEN 'configured' THEN CASE WHEN event.complete THEN 'complete' ELSE 'forming' END
                    ELSE event.kind
                END
                ORDER BY event.happened_at DESC, ranked.rank DESC
            ) FILTER (WHERE event.happened_at <= at))[1] AS state,
            (array_agg(event.config_map ORDER BY event.happened_at DESC)
                FILTER (WHERE event.happened_at <= at AND event.kind = 'configured'))[1] AS config_map,
            (array_agg(event.source ORDER BY event.happened_at DESC)
                FILTER (WHERE event.happened_at <= at AND event.kind = 'configured'))[1] AS source,
            (array_agg(event.expected ORDER BY event.happened_at DESC, ranked.rank DESC)
                FILTER (WHERE event.happened_at <= at AND event.expected IS NOT NULL))[1] AS expected,
            (array_agg(event.found ORDER BY event.happened_at DESC, ranked.rank DESC)
                FILTER (WHERE event.happened_at <= at AND event.found IS NOT NULL))[1] AS found,
            (array_agg(event.waited_us ORDER BY event.happened_at DESC, ranked.rank DESC)
                FILTER (WHERE event.happened_at <= at AND event.waited_us IS NOT NULL))[1] AS waited_us,
            max(event.happened_at) FILTER (WHERE event.happened_at <= at AND event.kind = 'timed-out') AS timed_out_at,
            (array_agg(event.reason ORDER BY event.happened_at DESC, ranked.rank DESC)
                FILTER (WHERE event.happened_at <= at AND event.kind IN ('configured', 'not-configured')))[1] AS reason,
            (array_agg(event.message ORDER BY event.happened_at DESC, ranked.rank DESC)
                FILTER (WHERE event.happened_at <= at AND event.kind IN ('configured', 'not-configured')))[1] AS message,
            max(event.happened_at) FILTER (WHERE event.happened_at <= at) AS last_at,
            (array_agg(event.kind ORDER BY event.happened_at DESC, ranked.rank DESC)
                FILTER (WHERE event.happened_at <= at))[1] AS last_kind,
            count(*) FILTER (WHERE event.happened_at > at) AS later
        FROM gpuledger_live.preflight_gang_event AS event
        CROSS JOIN LATERAL (
            SELECT array_position(ARRAY['configured', 'timed-out', 'not-configured', 'dissolved'], event.kind) AS rank
        ) AS ranked
        WHERE event.gang = gang.gang AND event.happened_at BETWEEN gang.began_at AND gang.last_at
    ) AS until ON gang.last_at > at
    WHERE gang.began_at <= at;
END;

COMMENT ON FUNCTION report.preflight_gangs_at(timestamptz) IS
    'Gangs that had begun by then, with what had come of them up to then; those that were dissolved later are still there: the columns of gpuledger_live.preflight_gang.';
