CREATE FUNCTION report.allocation_changes()
RETURNS TABLE (day timestamptz, node text, owner text, class text, held numeric, held_us numeric)
LANGUAGE sql STABLE
BEGIN ATOMIC
SELECT total.day, total.node, total.owner, total.workload_class, total.held, total.held_us
FROM gpuledger_live.allocation_day AS total
WHERE report.has_day_totals('workloads')
UNION ALL
SELECT of_day.day, beside.node, beside.owner, beside.class, edge.amount, edge.amount * of_day.rest_us
FROM (
    SELECT
        allocation.node, workload.owner, workload.workload_class AS class, allocation.gpu_milli, allocation.valid_from,
        greatest(allocation.valid_from, coalesce(source.completed_at, now())) AS until
    FROM gpuledger_live.allocation AS allocation
    JOIN gpuledger_live.workload AS workload ON workload.workload = allocation.workload
    LEFT JOIN gpuledger_live.source AS source ON source.source = workload.source AND source.epoch = workload.epoch
    WHERE allocation.valid_to IS NULL
    UNION ALL
    SELECT
        allocation.node, workload.owner, workload.workload_class, allocation.gpu_milli, allocation.valid_from,
        allocation.valid_to
    FROM gpuledger_live.allocation AS allocation
    JOIN gpuledger_live.workload AS workload ON workload.workload = allocation.workload
    WHERE allocation.valid_to IS NOT NULL AND NOT report.has_day_totals('workloads')
) AS beside
CROSS JOIN LATERAL (
    VALUES (beside.valid_from, beside.gpu_milli::numeric), (beside.until, -beside.gpu_milli::numeric)
) AS edge (at, amount)
CROSS JOIN LATERAL (
    SELECT
        date_trunc('day', edge.at, 'UTC') AS day,
        extract(epoch FROM date_trunc('day', edge.at, 'UTC') + interval '24 hours' - edge.at) * 1000000 AS rest_us
) AS of_day
WHERE beside.valid_from < beside.until;
END;

COMMENT ON FUNCTION report.allocation_changes() IS
    'What allocations change on a day (UTC): thousandths of a GPU times microseconds held on it, and thousandths that later days have to add of those that are long or last.';
