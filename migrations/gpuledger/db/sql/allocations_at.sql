CREATE FUNCTION report.allocations_at(at timestamptz) RETURNS SETOF gpuledger_live.allocation
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        allocation.workload,
        allocation.device,
        allocation.valid_from,
        allocation.node,
        allocation.gpu_milli,
        CASE WHEN allocation.valid_to <= at THEN allocation.valid_to END
    FROM gpuledger_live.allocation AS allocation
    WHERE report.is_kept('allocation', at) AND allocation.valid_from <= at;
END;

COMMENT ON FUNCTION report.allocations_at(timestamptz) IS
    'Allocations that had begun by then; those that ended later are still open.';
