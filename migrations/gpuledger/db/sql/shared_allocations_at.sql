CREATE FUNCTION report.shared_allocations_at(at timestamptz) RETURNS SETOF gpuledger_live.shared_allocation
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        held.uid,
        held.node,
        held.type,
        held.minor,
        held.valid_from,
        NULL::timestamptz,
        held.pod,
        held.namespace,
        held.id,
        held.core,
        held.memory,
        held.ratio,
        NULL::timestamptz
    FROM gpuledger_live.shared_allocation AS held
    WHERE report.is_kept('shared_allocation', at)
        AND held.valid_from <= at AND (held.valid_to IS NULL OR held.valid_to > at);
END;

COMMENT ON FUNCTION report.shared_allocations_at(timestamptz) IS
    'What pods held of shared devices then: the columns of gpuledger_live.shared_allocation.';
