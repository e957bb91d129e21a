CREATE VIEW report.container_allocations AS
SELECT
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
    held.valid_from,
    held.valid_to,
    trim_scale(round(extract(epoch FROM counted.until - held.valid_from) / 3600, 9)) AS hours
FROM gpuledger_live.container_allocation_history AS held
CROSS JOIN LATERAL (
    SELECT coalesce(held.valid_to, greatest(held.valid_from, now())) AS until
) AS counted
ORDER BY held.node, held.device, held.slice, held.valid_from, held.allocation, held.unit;

COMMENT ON VIEW report.container_allocations IS
    'One row per unit of a device and container that had it or has it, as the agents of nodes told.';
COMMENT ON COLUMN report.container_allocations.node IS 'The node.';
COMMENT ON COLUMN report.container_allocations.namespace IS 'The pod''s namespace.';
COMMENT ON COLUMN report.container_allocations.pod IS 'The pod''s name; a pod that was made anew may have the same one.';
COMMENT ON COLUMN report.container_allocations.container IS 'The container.';
COMMENT ON COLUMN report.container_allocations.resource IS 'The extended resource that it asked for; null for a device of a claim.';
COMMENT ON COLUMN report.container_allocations.device IS 'The UUID of the card or MIG instance; for a claim the device as its driver calls it.';
COMMENT ON COLUMN report.container_allocations.slice IS 'Which slice of the device, from 0; null where the container has it alone.';
COMMENT ON COLUMN report.container_allocations.claim IS 'The claim by which it has the device; null for an extended resource.';
COMMENT ON COLUMN report.container_allocations.driver IS 'The driver of the claim''s device.';
COMMENT ON COLUMN report.container_allocations.pool IS 'The pool of the claim''s device.';
COMMENT ON COLUMN report.container_allocations.valid_from IS 'Since when it was told that the container has it.';
COMMENT ON COLUMN report.container_allocations.valid_to IS 'When it was told that it has it no more; null while it has it.';
COMMENT ON COLUMN report.container_allocations.hours IS 'How long, in hours; what is still held counts to now.';
