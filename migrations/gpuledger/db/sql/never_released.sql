CREATE VIEW report.never_released AS
WITH published AS MATERIALIZED (
    -- A slice that defines counters offers no devices, whatever it lists.
    SELECT DISTINCT slice.driver, slice.pool, device ->> 'name' AS device
    FROM gpuledger_live.resource_slice AS slice
    CROSS JOIN LATERAL jsonb_array_elements(slice.payload::jsonb -> 'devices') AS device
    WHERE NOT slice.payload::jsonb ? 'counter_sets'
)
SELECT
    allocation.driver,
    allocation.pool,
    allocation.device,
    published.device IS NULL AS vanished,
    split_part(allocation.claim, '/', 1) AS namespace,
    split_part(allocation.claim, '/', 2) AS claim,
    claim.owner,
    allocation.request,
    nullif(allocation.share, '') AS share,
    allocation.admin_access,
    allocation.valid_from,
    trim_scale(round(extract(epoch FROM greatest(now() - allocation.valid_from, interval '0')) / 3600, 9)) AS hours
FROM gpuledger_live.device_allocation AS allocation
LEFT JOIN gpuledger_live.resource_claim AS claim ON claim.claim = allocation.claim
LEFT JOIN published
    ON (published.driver, published.pool, published.device) = (allocation.driver, allocation.pool, allocation.device)
WHERE allocation.valid_to IS NULL
ORDER BY
    vanished DESC, allocation.valid_from, allocation.driver, allocation.pool, allocation.device, allocation.claim,
    allocation.request, allocation.share;

COMMENT ON VIEW report.never_released IS
    'Devices that claims still hold: first those that no slice publishes any more, and within each group the longest held first.';
COMMENT ON COLUMN report.never_released.driver IS 'The driver.';
COMMENT ON COLUMN report.never_released.pool IS 'Its pool.';
COMMENT ON COLUMN report.never_released.device IS 'The device.';
COMMENT ON COLUMN report.never_released.vanished IS 'Whether no slice of the pool, of any generation, publishes it any more.';
COMMENT ON COLUMN report.never_released.namespace IS 'The claim''s namespace.';
COMMENT ON COLUMN report.never_released.claim IS 'The claim''s name.';
COMMENT ON COLUMN report.never_released.owner IS 'The pod that the claim was created for; null for a claim created independently.';
COMMENT ON COLUMN report.never_released.request IS 'The request of the claim that the device satisfies.';
COMMENT ON COLUMN report.never_released.share IS 'The share of a shareable device; null if the claim holds the device alone.';
COMMENT ON COLUMN report.never_released.admin_access IS 'Whether it is admin access, which takes the device from nobody.';
COMMENT ON COLUMN report.never_released.valid_from IS 'Since when.';
COMMENT ON COLUMN report.never_released.hours IS 'Duration until now, in hours.';
