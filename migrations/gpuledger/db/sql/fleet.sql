CREATE VIEW report.fleet AS
SELECT
    device.devices,
    slot.slots,
    life.lives,
    life.gpu_years,
    device.in_service,
    failure.failures,
    contradiction.overlaps,
    contradiction.overlap_slots,
    contradiction.devices_in_two_places,
    node.nodes,
    node.gpus,
    workload.workloads,
    workload.never_scheduled,
    held.gpu_hours
FROM
    (
        SELECT count(*) AS devices, count(*) FILTER (WHERE state = 'InService') AS in_service
        FROM gpuledger_live.device
    ) AS device,
    (SELECT count(*) AS slots FROM gpuledger_live.slot) AS slot,
    (
        SELECT
            count(*) AS lives,
            round(coalesce(sum(extract(epoch FROM counted_to - started)), 0) / (86400 * 365.25), 2) AS gpu_years
        FROM report.lifetimes
    ) AS life,
    (
        SELECT coalesce(jsonb_object_agg(kind, times), '{}') AS failures
        FROM (SELECT kind, count(*) AS times FROM gpuledger_live.failure GROUP BY kind) AS by_kind
    ) AS failure,
    (
        SELECT
            count(*) FILTER (WHERE kind = 'two-devices-in-slot') AS overlaps,
            count(DISTINCT subject) FILTER (WHERE kind = 'two-devices-in-slot') AS overlap_slots,
            count(DISTINCT subject) FILTER (WHERE kind = 'device-in-two-slots') AS devices_in_two_places
        FROM gpuledger_live.contradiction
    ) AS contradiction,
    (
        SELECT count(*) AS nodes, coalesce(sum(coalesce(gpu_count, slots)), 0)::bigint AS gpus
        FROM gpuledger_live.node
        WHERE present
    ) AS node,
    (
        SELECT count(*) AS workloads, count(*) FILTER (WHERE phase = 'Unscheduled') AS never_scheduled
        FROM gpuledger_live.workload
    ) AS workload,
    (SELECT round(coalesce(sum(gpu_hours), 0), 2) AS gpu_hours FROM report.gpu_hours) AS held;

COMMENT ON VIEW report.fleet IS 'The whole fleet in one row.';
COMMENT ON COLUMN report.fleet.devices IS 'Devices ever recorded.';
COMMENT ON COLUMN report.fleet.slots IS 'Slots ever recorded.';
COMMENT ON COLUMN report.fleet.lives IS 'Lives of devices in slots, ended or not.';
COMMENT ON COLUMN report.fleet.gpu_years IS
    'All lives together, in years of 365.25 days; a life that continues counts to the end of its source''s data or to now.';
COMMENT ON COLUMN report.fleet.in_service IS 'Devices in a slot now.';
COMMENT ON COLUMN report.fleet.failures IS 'Failures by kind.';
COMMENT ON COLUMN report.fleet.overlaps IS 'Pairs of lives of two devices in one slot at once.';
COMMENT ON COLUMN report.fleet.overlap_slots IS 'Slots that held two devices at once at any time.';
COMMENT ON COLUMN report.fleet.devices_in_two_places IS 'Devices that were in two slots at once at any time.';
COMMENT ON COLUMN report.fleet.nodes IS 'Nodes that have not been decommissioned.';
COMMENT ON COLUMN report.fleet.gpus IS
    'GPUs registered for those nodes, or the slots declared on them if no number was registered.';
COMMENT ON COLUMN report.fleet.workloads IS 'Workloads ever recorded.';
COMMENT ON COLUMN report.fleet.never_scheduled IS 'Workloads that ended without being scheduled.';
COMMENT ON COLUMN report.fleet.gpu_hours IS 'GPU-hours that workloads held; a fraction of a GPU counts as that fraction.';
