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
    'One row per unit of a device and container that holds or held it, as the nodes'' agents reported.';
COMMENT ON COLUMN report.container_allocations.node IS 'The node.';
COMMENT ON COLUMN report.container_allocations.namespace IS 'The pod''s namespace.';
COMMENT ON COLUMN report.container_allocations.pod IS 'The pod''s name; a pod created later may have the same one.';
COMMENT ON COLUMN report.container_allocations.container IS 'The container.';
COMMENT ON COLUMN report.container_allocations.resource IS 'The extended resource that it requested; null for a device of a claim.';
COMMENT ON COLUMN report.container_allocations.device IS 'The UUID of the card or MIG instance; for a claim, the driver''s name of the device.';
COMMENT ON COLUMN report.container_allocations.slice IS 'Number of the device''s slice, from 0; null if the container has the whole device.';
COMMENT ON COLUMN report.container_allocations.claim IS 'The claim that holds the device; null for an extended resource.';
COMMENT ON COLUMN report.container_allocations.driver IS 'The driver of the claim''s device.';
COMMENT ON COLUMN report.container_allocations.pool IS 'The pool of the claim''s device.';
COMMENT ON COLUMN report.container_allocations.valid_from IS 'Since when an agent has reported that the container holds it.';
COMMENT ON COLUMN report.container_allocations.valid_to IS 'When an agent reported that the container no longer holds it; null while it does.';
COMMENT ON COLUMN report.container_allocations.hours IS 'Duration in hours; an allocation that is still held counts to now.';
