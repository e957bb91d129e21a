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
    'Errors that left a device usable, as the nodes'' agents reported: one row per device, kind and cause, most errors first.';
COMMENT ON COLUMN report.device_errors.device IS 'The UUID of the card, or its place in the node if it reports none.';
COMMENT ON COLUMN report.device_errors.kind IS 'The kind of error, such as XID 31.';
COMMENT ON COLUMN report.device_errors.cause IS 'The cause: application or hardware.';
COMMENT ON COLUMN report.device_errors.errors IS 'Number of errors.';
COMMENT ON COLUMN report.device_errors.first_at IS 'When the first one happened.';
COMMENT ON COLUMN report.device_errors.last_at IS 'When the last one happened.';
COMMENT ON COLUMN report.device_errors.node IS 'The node whose agent saw them; a card that moved has a row for each.';
COMMENT ON COLUMN report.device_errors.slot IS 'The slot that the device is in now; null if none is known.';
