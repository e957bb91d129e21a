CREATE VIEW report.allocation AS
SELECT
    allocation.workload,
    workload.owner,
    workload.workload_class AS class,
    nullif(allocation.device, '') AS device,
    allocation.node,
    trim_scale(allocation.gpu_milli / 1000.0) AS gpus,
    allocation.valid_from,
    allocation.valid_to,
    trim_scale(round(extract(epoch FROM counted.until - allocation.valid_from) / 3600, 9)) AS hours
FROM gpuledger_live.allocation AS allocation
JOIN gpuledger_live.workload AS workload ON workload.workload = allocation.workload
LEFT JOIN gpuledger_live.source AS source ON source.source = workload.source AND source.epoch = workload.epoch
CROSS JOIN LATERAL (
    SELECT coalesce(
        allocation.valid_to, greatest(allocation.valid_from, coalesce(source.completed_at, now()))
    ) AS until
) AS counted;

COMMENT ON VIEW report.allocation IS 'One row per scheduling of a workload and device (or amount without a device) that it holds or held.';
COMMENT ON COLUMN report.allocation.workload IS 'The workload.';
COMMENT ON COLUMN report.allocation.owner IS 'Who submitted it; null if not recorded.';
COMMENT ON COLUMN report.allocation.class IS 'Its class of service; null if not recorded.';
COMMENT ON COLUMN report.allocation.device IS 'The device; null if only the amount is known.';
COMMENT ON COLUMN report.allocation.node IS 'The node to which the workload was scheduled.';
COMMENT ON COLUMN report.allocation.gpus IS 'Number of GPUs, fractions as fractions.';
COMMENT ON COLUMN report.allocation.valid_from IS 'When the allocation began: the scheduling.';
COMMENT ON COLUMN report.allocation.valid_to IS 'When it ended: the next scheduling or the first end; null while it is held.';
COMMENT ON COLUMN report.allocation.hours IS
    'Duration in hours; an allocation that is still held counts to the end of its source''s data, or to now if that source continues.';
