CREATE FUNCTION report.container_changes()
RETURNS TABLE (
    day timestamptz, node text, namespace text, resource text, driver text, pool text, held numeric, held_us numeric
)
LANGUAGE sql STABLE
BEGIN ATOMIC
SELECT total.day, total.node, total.namespace, total.resource, total.driver, total.pool, total.held, total.held_us
FROM gpuledger_live.container_allocation_day AS total
WHERE report.has_day_totals('allocations')
UNION ALL
SELECT
    of_day.day, beside.node, beside.namespace, beside.resource, beside.driver, beside.pool,
    edge.amount, edge.amount * of_day.rest_us
FROM (
    SELECT
        held.node, held.namespace, held.resource, held.driver, held.pool, held.valid_from,
        greatest(held.valid_from, now()) AS until
    FROM gpuledger_live.container_allocation_history AS held
    WHERE held.valid_to IS NULL
    UNION ALL
    SELECT held.node, held.namespace, held.resource, held.driver, held.pool, held.valid_from, held.valid_to
    FROM gpuledger_live.container_allocation_history AS held
    WHERE held.valid_to IS NOT NULL AND NOT report.has_day_totals('allocations')
) AS beside
CROSS JOIN LATERAL (VALUES (beside.valid_from, 1::numeric), (beside.until, -1::numeric)) AS edge (at, amount)
CROSS JOIN LATERAL (
    SELECT
        date_trunc('day', edge.at, 'UTC') AS day,
        extract(epoch FROM date_trunc('day', edge.at, 'UTC') + interval '24 hours' - edge.at) * 1000000 AS rest_us
) AS of_day
WHERE beside.valid_from < beside.until;
END;

COMMENT ON FUNCTION report.container_changes() IS
    'What containers'' devices change on a day (UTC): unit-microseconds held on it, and units that later days have to add of those held for long or still.';
