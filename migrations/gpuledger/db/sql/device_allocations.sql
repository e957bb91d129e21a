CREATE VIEW report.device_allocations AS
SELECT
    allocation.driver,
    allocation.pool,
    allocation.device,
    split_part(allocation.claim, '/', 1) AS namespace,
    split_part(allocation.claim, '/', 2) AS claim,
    allocation.request,
    nullif(allocation.share, '') AS share,
    nullif(allocation.consumed, '')::jsonb AS consumed,
    allocation.admin_access,
    allocation.valid_from,
    allocation.valid_to,
    trim_scale(round(extract(epoch FROM counted.until - allocation.valid_from) / 3600, 9)) AS hours
FROM gpuledger_live.device_allocation AS allocation
CROSS JOIN LATERAL (
    SELECT coalesce(allocation.valid_to, greatest(allocation.valid_from, now())) AS until
) AS counted
ORDER BY
    allocation.driver, allocation.pool, allocation.device, allocation.valid_from, allocation.claim, allocation.request,
    allocation.share;

COMMENT ON VIEW report.device_allocations IS
    'One row per device of a pool and claim that holds or held it: who held which device, and when.';
COMMENT ON COLUMN report.device_allocations.driver IS 'The driver.';
COMMENT ON COLUMN report.device_allocations.pool IS 'Its pool.';
COMMENT ON COLUMN report.device_allocations.device IS 'The device; names are unique only within a driver''s pool.';
COMMENT ON COLUMN report.device_allocations.namespace IS 'The claim''s namespace.';
COMMENT ON COLUMN report.device_allocations.claim IS 'The claim''s name; a claim created later may have the same one.';
COMMENT ON COLUMN report.device_allocations.request IS 'The request of the claim that the device satisfies.';
COMMENT ON COLUMN report.device_allocations.share IS 'The share of a shareable device; null if the claim held the device alone.';
COMMENT ON COLUMN report.device_allocations.consumed IS 'How much of the device''s capacities the share consumed; null if nothing was recorded.';
COMMENT ON COLUMN report.device_allocations.admin_access IS 'Whether it was admin access, which takes the device from nobody.';
COMMENT ON COLUMN report.device_allocations.valid_from IS 'Since when.';
COMMENT ON COLUMN report.device_allocations.valid_to IS 'Until when; null while it is held.';
COMMENT ON COLUMN report.device_allocations.hours IS 'Duration in hours; an allocation that is still held counts to now.';
