CREATE FUNCTION report.slots_at(at timestamptz) RETURNS SETOF gpuledger_live.slot
LANGUAGE sql STABLE
BEGIN ATOMIC
    -- In the order of the key: look-ups of neighbours share the pages of an index.
    SELECT
        slot.slot,
        declared.node,
        declared.slot_index,
        version.device,
        coalesce(version.occupants, 0),
        coalesce(version.lives, 0),
        slot.first_seen_at,
        version.vacated_at
    FROM (SELECT * FROM gpuledger_live.slot ORDER BY slot) AS slot
    LEFT JOIN LATERAL (
        SELECT history.node, history.slot_index
        FROM gpuledger_live.slot_history AS history
        WHERE history.slot = slot.slot AND history.valid_from <= at
        ORDER BY history.valid_from DESC
        LIMIT 1
    ) AS declared ON true
    LEFT JOIN LATERAL (
        SELECT history.*
        FROM gpuledger_live.occupancy_history AS history
        WHERE history.slot = slot.slot AND history.valid_from <= at
        ORDER BY history.valid_from DESC
        LIMIT 1
    ) AS version ON true
    WHERE slot.first_seen_at <= at AND report.has_versions()
    UNION ALL
    -- Rows of a build that kept no versions.
    SELECT
        slot.slot,
        declared.node,
        declared.slot_index,
        life.device,
        coalesce(life.occupants, 0),
        coalesce(life.lives, 0),
        slot.first_seen_at,
        life.vacated_at
    FROM gpuledger_live.slot AS slot
    LEFT JOIN gpuledger_live.slot_history AS declared
        ON declared.slot = slot.slot
        AND declared.valid_from <= at
        AND (declared.valid_to IS NULL OR declared.valid_to > at)
    LEFT JOIN (
        SELECT
            installation.slot,
            count(*) AS lives,
            max(installation.valid_to) AS vacated_at,
            count(*) FILTER (WHERE installation.valid_to IS NULL) AS occupants,
            (array_agg(installation.device ORDER BY installation.valid_from DESC, installation.device DESC)
                FILTER (WHERE installation.valid_to IS NULL))[1] AS device
        FROM report.installations_at(slots_at.at) AS installation
        GROUP BY installation.slot
    ) AS life ON life.slot = slot.slot
    WHERE slot.first_seen_at <= at AND NOT report.has_versions();
END;

COMMENT ON FUNCTION report.slots_at(timestamptz) IS
    'Slots known by then, in their state at that time: the columns of gpuledger_live.slot.';
