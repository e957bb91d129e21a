CREATE FUNCTION report.container_allocations_at(at timestamptz) RETURNS SETOF gpuledger_live.container_allocation
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        held.allocation,
        held.unit,
        held.node,
        held.namespace,
        held.pod,
        held.container,
        held.resource,
        held.device,
        held.slice,
        held.claim,
        held.driver,
        held.pool,
        held.valid_from
    FROM gpuledger_live.container_allocation_history AS held
    WHERE report.is_kept('container_allocation_history', at)
        AND held.valid_from <= at AND (held.valid_to IS NULL OR held.valid_to > at);
END;

COMMENT ON FUNCTION report.container_allocations_at(timestamptz) IS
    'Units that containers held then: the columns of gpuledger_live.container_allocation.';
