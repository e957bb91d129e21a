CREATE FUNCTION report.devices_at(at timestamptz) RETURNS SETOF gpuledger_live.device
LANGUAGE sql STABLE
BEGIN ATOMIC
    -- In the order of the key: look-ups of neighbours share the pages of an index.
    SELECT
        device.device,
        coalesce(version.state, 'Unplaced'),
        version.slot,
        version.in_service_since,
        coalesce(version.places, 0),
        version.serial,
        version.uuid,
        version.model,
        device.first_seen_at,
        version.removed_at,
        coalesce(version.lives, 0),
        CASE WHEN unchanged.failures THEN device.failures ELSE failed.failures END,
        CASE WHEN unchanged.failures THEN device.last_failed_at ELSE failed.last_failed_at END
    FROM (SELECT * FROM gpuledger_live.device ORDER BY device) AS device
    -- What has not changed since the moment is as it is now, without a look-up.
    CROSS JOIN LATERAL (
        SELECT
            coalesce(greatest(device.in_service_since, device.removed_at) <= at, true) AS placement,
            coalesce(device.last_failed_at <= at, true) AS failures
    ) AS unchanged
    LEFT JOIN LATERAL (
        SELECT
            device.state, device.slot, device.in_service_since, device.places, device.serial, device.uuid,
            device.model, device.removed_at, device.lives
        WHERE unchanged.placement
        UNION ALL
        (
            SELECT
                history.state, history.slot, history.in_service_since, history.places, history.serial, history.uuid,
                history.model, history.removed_at, history.lives
            FROM gpuledger_live.device_history AS history
            WHERE history.device = device.device AND history.valid_from <= at AND NOT unchanged.placement
            ORDER BY history.valid_from DESC
            LIMIT 1
        )
    ) AS version ON true
    CROSS JOIN LATERAL (
        SELECT count(*) AS failures, max(failure.failed_at) AS last_failed_at
        FROM gpuledger_live.failure AS failure
        WHERE failure.device = device.device AND failure.failed_at <= at AND NOT unchanged.failures
    ) AS failed
    WHERE device.first_seen_at <= at AND report.has_versions()
    UNION ALL
    -- Rows of a build that kept no versions.
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
        failed.failures,
        failed.last_failed_at
    FROM gpuledger_live.device AS device
    LEFT JOIN (
        SELECT
            installation.device,
            count(*) AS lives,
            count(*) FILTER (WHERE installation.valid_to IS NULL) AS places,
            max(installation.valid_to) AS removed_at,
            (array_agg(installation.slot ORDER BY installation.valid_from DESC, installation.slot DESC)
                FILTER (WHERE installation.valid_to IS NULL))[1] AS slot,
            max(installation.valid_from) FILTER (WHERE installation.valid_to IS NULL) AS in_service_since,
            (array_agg(installation.retired ORDER BY installation.valid_to DESC, installation.retired DESC)
                FILTER (WHERE installation.valid_to IS NOT NULL))[1] AS retired,
            (array_agg(installation.serial ORDER BY installation.valid_from DESC, installation.slot DESC)
                FILTER (WHERE installation.serial <> ''))[1] AS serial,
            (array_agg(installation.uuid ORDER BY installation.valid_from DESC, installation.slot DESC)
                FILTER (WHERE installation.uuid <> ''))[1] AS uuid,
            (array_agg(installation.model ORDER BY installation.valid_from DESC, installation.slot DESC)
                FILTER (WHERE installation.model <> ''))[1] AS model
        FROM report.installations_at(devices_at.at) AS installation
        GROUP BY installation.device
    ) AS life ON life.device = device.device
    CROSS JOIN LATERAL (
        SELECT count(*) AS failures, max(failure.failed_at) AS last_failed_at
        FROM gpuledger_live.failure AS failure
        WHERE failure.device = device.device AND failure.failed_at <= at
    ) AS failed
    WHERE device.first_seen_at <= at AND NOT report.has_versions();
END;

COMMENT ON FUNCTION report.devices_at(timestamptz) IS
    'Devices known by then, in their state at that time: the columns of gpuledger_live.device.';
