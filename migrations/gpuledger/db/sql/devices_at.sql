CREATE FUNCTION report.devices_at(at timestamptz) RETURNS SETOF gpuledger_live.device
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        device.device,
        CASE
            WHEN life.lives IS NULL THEN 'Unplaced'
            WHEN life.slot IS NOT NULL THEN 'InService'
            WHEN life.retired THEN 'Retired'
            ELSE 'Removed'
        END,
        life.slot,
        life.in_service_since,
        coalesce(life.places, 0),
        life.serial,
        life.uuid,
        life.model,
        device.first_seen_at,
        life.removed_at,
        coalesce(life.lives, 0),
        coalesce(failed.failures, 0),
        failed.last_failed_at
    FROM gpuledger_live.device AS device
    LEFT JOIN (
        SELECT
            stint.device,
            count(*) AS lives,
            count(*) FILTER (WHERE stint.valid_to IS NULL) AS places,
            max(stint.valid_to) AS removed_at,
            (array_agg(stint.slot ORDER BY stint.valid_from DESC, stint.slot DESC)
                FILTER (WHERE stint.valid_to IS NULL))[1] AS slot,
            max(stint.valid_from) FILTER (WHERE stint.valid_to IS NULL) AS in_service_since,
            (array_agg(stint.retired ORDER BY stint.valid_to DESC, stint.retired DESC)
                FILTER (WHERE stint.valid_to IS NOT NULL))[1] AS retired,
            (array_agg(stint.serial ORDER BY stint.valid_from DESC, stint.slot DESC)
                FILTER (WHERE stint.serial <> ''))[1] AS serial,
            (array_agg(stint.uuid ORDER BY stint.valid_from DESC, stint.slot DESC)
                FILTER (WHERE stint.uuid <> ''))[1] AS uuid,
            (array_agg(stint.model ORDER BY stint.valid_from DESC, stint.slot DESC)
                FILTER (WHERE stint.model <> ''))[1] AS model
        FROM report.stints_at(devices_at.at) AS stint
        GROUP BY stint.device
    ) AS life ON life.device = device.device
    LEFT JOIN (
        SELECT failure.device, count(*) AS failures, max(failure.failed_at) AS last_failed_at
        FROM gpuledger_live.failure AS failure
        WHERE failure.failed_at <= at
        GROUP BY failure.device
    ) AS failed ON failed.device = device.device
    WHERE device.first_seen_at <= at;
END;

COMMENT ON FUNCTION report.devices_at(timestamptz) IS
    'Devices known by then, as they were then: the columns of gpuledger_live.device.';
