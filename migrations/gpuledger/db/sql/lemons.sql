CREATE VIEW report.lemons AS
WITH lived AS (
    SELECT incident.incident, incident.device, incident.node, incident.opened_at AS at, life.slot, life.valid_from
    FROM gpuledger_live.incident AS incident
    LEFT JOIN gpuledger_live.installation AS life
        ON life.device = incident.device
        AND life.valid_from <= incident.opened_at
        AND (life.valid_to IS NULL OR life.valid_to > incident.opened_at)
    WHERE incident.device IS NOT NULL
)
SELECT
    lived.device,
    device.model,
    device.serial,
    count(DISTINCT lived.incident) AS incidents,
    count(DISTINCT lived.node) AS nodes,
    count(DISTINCT lived.slot) AS slots,
    count(DISTINCT (lived.slot, lived.valid_from)) FILTER (WHERE lived.slot IS NOT NULL) AS lives,
    min(lived.at) AS first_at,
    max(lived.at) AS last_at,
    device.slot
FROM lived
LEFT JOIN gpuledger_live.device AS device ON device.device = lived.device
GROUP BY lived.device, device.model, device.serial, device.slot
HAVING count(DISTINCT lived.incident) >= report.lemon_incidents_min()
    AND (
        count(DISTINCT lived.node) > 1
        OR count(DISTINCT (lived.slot, lived.valid_from)) FILTER (WHERE lived.slot IS NOT NULL) > 1
    )
ORDER BY incidents DESC, lived.device;

COMMENT ON VIEW report.lemons IS
    'Devices with at least report.lemon_incidents_min() incidents on several nodes or in several lives: the fault moves with them.';
COMMENT ON COLUMN report.lemons.device IS 'The UUID of the card.';
COMMENT ON COLUMN report.lemons.model IS 'Its model; null if unknown.';
COMMENT ON COLUMN report.lemons.serial IS 'Its serial number; null if unknown.';
COMMENT ON COLUMN report.lemons.incidents IS 'Number of its incidents.';
COMMENT ON COLUMN report.lemons.nodes IS 'Number of different nodes on which it had them.';
COMMENT ON COLUMN report.lemons.slots IS 'Number of different slots in which it had them.';
COMMENT ON COLUMN report.lemons.lives IS 'Number of its lives in which it had them: it was taken out in between.';
COMMENT ON COLUMN report.lemons.first_at IS 'When the first one began.';
COMMENT ON COLUMN report.lemons.last_at IS 'When the last one began.';
COMMENT ON COLUMN report.lemons.slot IS 'The slot that it is in now; null if none.';
