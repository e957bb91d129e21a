CREATE FUNCTION report.incidents_at(at timestamptz) RETURNS SETOF gpuledger_live.incident
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        incident.scope,
        incident.entity,
        incident.opened_at,
        incident.incident,
        incident.node,
        incident.monitor,
        incident.check_name,
        incident.device,
        incident.component,
        incident.opened_position,
        incident.recorded_at,
        CASE WHEN incident.ended_at <= at THEN incident.ended_at END,
        CASE WHEN incident.ended_at <= at THEN incident.ended_by END,
        coalesce(until.last_at, incident.last_at),
        coalesce(until.reports, incident.reports),
        coalesce(until.fatal, incident.fatal),
        coalesce(until.codes, incident.codes),
        incident.first_cause,
        coalesce(until.last_cause, incident.last_cause),
        coalesce(until.action, incident.action),
        CASE WHEN incident.ended_at <= at THEN '' ELSE (
            -- Each code that was reported and not cleared later, an empty one for reports without codes.
            SELECT coalesce(string_agg(found.code, ',' ORDER BY found.code), '')
            FROM (
                SELECT code COLLATE "C" AS code, max(coded.reported_at) AS reported_at
                FROM gpuledger_live.health_report AS coded
                CROSS JOIN LATERAL unnest(
                    CASE coded.unhealthy_codes
                        WHEN '' THEN ARRAY['']
                        ELSE string_to_array(coded.unhealthy_codes, ',')
                    END
                ) AS code
                WHERE coded.scope = incident.scope
                    AND coded.entity = incident.entity
                    AND coded.reported_at BETWEEN incident.opened_at AND at
                    AND NOT coded.healthy
                GROUP BY 1
            ) AS found
            WHERE NOT EXISTS (
                SELECT FROM gpuledger_live.health_report AS cleared
                WHERE cleared.scope = incident.scope
                    AND cleared.entity IN (incident.entity, '')
                    AND cleared.reported_at > found.reported_at
                    AND cleared.reported_at <= at
                    AND found.code <> ''
                    AND found.code = ANY (string_to_array(cleared.healthy_codes, ','))
            )
        ) END
    FROM gpuledger_live.incident AS incident
    LEFT JOIN LATERAL (
        -- What was reported up to then, where more was later.
        SELECT
            max(reported.reported_at) AS last_at,
            least(sum(reported.reports), 9223372036854775807)::bigint AS reports,
            bool_or(reported.fatal) AS fatal,
            (
                SELECT coalesce(string_agg(found.code, ',' ORDER BY found.code COLLATE "C"), '')
                FROM (
                    SELECT DISTINCT code COLLATE "C" AS code
                    FROM gpuledger_live.health_report AS coded
                    CROSS JOIN LATERAL unnest(string_to_array(coded.codes, ',')) AS code
                    WHERE coded.scope = incident.scope
                        AND coded.entity = incident.entity
                        AND coded.reported_at BETWEEN incident.opened_at AND at
                        AND NOT coded.healthy
                    ORDER BY 1
                    LIMIT 64
                ) AS found
            ) AS codes,
            (array_agg(left(coalesce(nullif(reported.message, ''), reported.codes), 256)
                ORDER BY reported.reported_at DESC))[1] AS last_cause,
            coalesce(
                (array_agg(reported.action ORDER BY reported.reported_at DESC)
                    FILTER (WHERE reported.action <> 'NONE'))[1],
                'NONE'
            ) AS action
        FROM gpuledger_live.health_report AS reported
        WHERE reported.scope = incident.scope
            AND reported.entity = incident.entity
            AND reported.reported_at BETWEEN incident.opened_at AND at
            AND NOT reported.healthy
    ) AS until ON incident.last_at > at
    WHERE incident.opened_at <= at;
END;

COMMENT ON FUNCTION report.incidents_at(timestamptz) IS
    'Incidents that had begun by then, with what was reported up to then; those that ended later are still open: the columns of gpuledger_live.incident.';
