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

COMMENT ON VIEW report.allocation IS 'One row per scheduling of a workload and device (or amount without a device) that it held or holds by it.';
COMMENT ON COLUMN report.allocation.workload IS 'The workload.';
COMMENT ON COLUMN report.allocation.owner IS 'Who submitted it; null where nobody said.';
COMMENT ON COLUMN report.allocation.class IS 'Its class of service; null where nobody said.';
COMMENT ON COLUMN report.allocation.device IS 'The device; null where only the amount is known.';
COMMENT ON COLUMN report.allocation.node IS 'The node that the workload was scheduled to.';
COMMENT ON COLUMN report.allocation.gpus IS 'How many GPUs, fractions as fractions.';
COMMENT ON COLUMN report.allocation.valid_from IS 'Since when: the scheduling.';
COMMENT ON COLUMN report.allocation.valid_to IS 'Until when: the next scheduling or the first end; null while it is held.';
COMMENT ON COLUMN report.allocation.hours IS
    'How long, in hours; what is still held counts to the end of its source''s data, or to now where that source goes on.';
