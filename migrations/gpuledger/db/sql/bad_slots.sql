CREATE VIEW report.bad_slots AS
WITH failed AS (
    SELECT life.slot, incident.device, incident.opened_at AS at, 1 AS incidents, 0 AS failures
    FROM gpuledger_live.incident AS incident
    JOIN gpuledger_live.installation AS life
        ON life.device = incident.device
        AND life.valid_from <= incident.opened_at
        AND (life.valid_to IS NULL OR life.valid_to > incident.opened_at)
    UNION ALL
    SELECT failure.slot, failure.device, failure.failed_at, 0, 1
    FROM gpuledger_live.failure AS failure
    WHERE failure.slot IS NOT NULL
)
SELECT
    failed.slot,
    slot.node,
    count(DISTINCT failed.device) AS devices,
    sum(failed.incidents)::bigint AS incidents,
    sum(failed.failures)::bigint AS failures,
    min(failed.at) AS first_at,
    max(failed.at) AS last_at
FROM failed
LEFT JOIN gpuledger_live.slot AS slot ON slot.slot = failed.slot
GROUP BY failed.slot, slot.node
HAVING count(DISTINCT failed.device) >= report.bad_slot_devices_min()
ORDER BY devices DESC, failed.slot;

COMMENT ON VIEW report.bad_slots IS
    'Slots in which at least report.bad_slot_devices_min() different devices had incidents or failed, most first.';
COMMENT ON COLUMN report.bad_slots.slot IS 'The slot.';
COMMENT ON COLUMN report.bad_slots.node IS 'The node; null if the slot was declared on none.';
COMMENT ON COLUMN report.bad_slots.devices IS 'Number of different devices that had incidents or failed there.';
COMMENT ON COLUMN report.bad_slots.incidents IS 'Number of incidents of cards while they were in the slot.';
COMMENT ON COLUMN report.bad_slots.failures IS 'Number of failures there; one that an agent found is an incident, too.';
COMMENT ON COLUMN report.bad_slots.first_at IS 'When the first of both happened.';
COMMENT ON COLUMN report.bad_slots.last_at IS 'When the last of both happened.';
