CREATE VIEW report.incidents AS
SELECT
    incident.incident,
    incident.node,
    incident.monitor,
    incident.check_name,
    incident.entity,
    incident.device,
    coalesce(device.model, node.gpu_model) AS model,
    incident.opened_at,
    incident.ended_at,
    incident.ended_by,
    round(extract(epoch FROM coalesce(incident.ended_at, greatest(incident.opened_at, now())) - incident.opened_at), 3)
        AS duration_s,
    incident.recorded_at,
    round(extract(epoch FROM greatest(incident.recorded_at, incident.opened_at) - incident.opened_at), 3)
        AS detected_after_s,
    incident.last_at,
    incident.reports,
    incident.fatal,
    incident.codes,
    incident.first_cause,
    incident.last_cause,
    incident.action
FROM gpuledger_live.incident AS incident
LEFT JOIN gpuledger_live.device AS device ON device.device = incident.device
LEFT JOIN gpuledger_live.node AS node ON node.node = incident.node
ORDER BY incident.opened_at DESC, incident.incident;

COMMENT ON VIEW report.incidents IS
    'One row per incident: what a check found unhealthy, until it was healthy or gone. The latest first.';
COMMENT ON COLUMN report.incidents.incident IS 'The id of the incident.';
COMMENT ON COLUMN report.incidents.node IS 'The node.';
COMMENT ON COLUMN report.incidents.monitor IS 'The monitor that reported it; gpuledger-agent is our own.';
COMMENT ON COLUMN report.incidents.check_name IS 'The check of the monitor.';
COMMENT ON COLUMN report.incidents.entity IS
    'The entity: the UUID of a card, or TYPE/value of anything else; empty for the node.';
COMMENT ON COLUMN report.incidents.device IS 'The UUID of the card; null if the entity is none, or its UUID is unknown.';
COMMENT ON COLUMN report.incidents.model IS 'The model of the card, or else of the node''s GPUs; null if none is known.';
COMMENT ON COLUMN report.incidents.opened_at IS 'When the first unhealthy report was made.';
COMMENT ON COLUMN report.incidents.ended_at IS 'When it ended; null while it is open.';
COMMENT ON COLUMN report.incidents.ended_by IS
    'What ended it: healthy (a report), node-gone or card-left; null while it is open.';
COMMENT ON COLUMN report.incidents.duration_s IS 'Its duration in seconds; an open one counts to now.';
COMMENT ON COLUMN report.incidents.recorded_at IS 'When the ledger got the first report.';
COMMENT ON COLUMN report.incidents.detected_after_s IS 'Seconds from the first report to its recording.';
COMMENT ON COLUMN report.incidents.last_at IS 'When the last unhealthy report was made.';
COMMENT ON COLUMN report.incidents.reports IS 'Number of unhealthy reports.';
COMMENT ON COLUMN report.incidents.fatal IS 'Whether any of them was fatal.';
COMMENT ON COLUMN report.incidents.codes IS 'The error codes of all of them, separated by commas.';
COMMENT ON COLUMN report.incidents.first_cause IS 'The message of the first report, or else its codes.';
COMMENT ON COLUMN report.incidents.last_cause IS 'The message of the last report, or else its codes.';
COMMENT ON COLUMN report.incidents.action IS 'The action that was recommended last; NONE if none was.';
