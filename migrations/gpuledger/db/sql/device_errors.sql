CREATE VIEW report.device_errors AS
SELECT
    counted.device,
    counted.kind,
    counted.cause,
    counted.errors,
    counted.first_at,
    counted.last_at,
    counted.node,
    device.slot
FROM gpuledger_live.device_errors AS counted
LEFT JOIN gpuledger_live.device AS device ON device.device = counted.device
ORDER BY counted.errors DESC, counted.device, counted.kind, counted.cause, counted.node;

COMMENT ON VIEW report.device_errors IS
    'Errors that left a device usable, as the agents of nodes told: one row per device, kind and cause, the most errors first.';
COMMENT ON COLUMN report.device_errors.device IS 'The UUID of the card, or its place in the node where it tells none.';
COMMENT ON COLUMN report.device_errors.kind IS 'What kind of error, such as XID 31.';
COMMENT ON COLUMN report.device_errors.cause IS 'Whose they are: application or hardware.';
COMMENT ON COLUMN report.device_errors.errors IS 'How many.';
COMMENT ON COLUMN report.device_errors.first_at IS 'When the first one happened.';
COMMENT ON COLUMN report.device_errors.last_at IS 'When the last one happened.';
COMMENT ON COLUMN report.device_errors.node IS 'The node whose agent saw them; a card that moved has a row for each.';
COMMENT ON COLUMN report.device_errors.slot IS 'The slot that the device is in now; null where it is in none that is known.';
