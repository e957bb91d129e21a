CREATE VIEW report.availability AS
SELECT
    driver,
    pool,
    nullif(node, '') AS node,
    valid_from,
    valid_to,
    generation,
    complete,
    valid,
    total,
    allocated,
    available,
    partial,
    total - allocated - available AS unavailable
FROM gpuledger_live.pool_availability
ORDER BY driver, pool, pool_availability.node, valid_from;

COMMENT ON VIEW report.availability IS
    'How many devices of each pool were available, over time: one row from one change to the next.';
COMMENT ON COLUMN report.availability.driver IS 'The driver.';
COMMENT ON COLUMN report.availability.pool IS 'Its pool.';
COMMENT ON COLUMN report.availability.node IS
    'The node that the slices belong to and from which the pool is seen; null for slices of no single node, seen from everywhere.';
COMMENT ON COLUMN report.availability.valid_from IS 'Since when.';
COMMENT ON COLUMN report.availability.valid_to IS 'End of the period; null while it lasts.';
COMMENT ON COLUMN report.availability.generation IS 'The generation of the pool that counted.';
COMMENT ON COLUMN report.availability.complete IS 'Whether all slices of that generation existed; an incomplete pool allocates no devices.';
COMMENT ON COLUMN report.availability.valid IS 'Whether the slices that existed did not contradict each other.';
COMMENT ON COLUMN report.availability.total IS 'Devices that the slices published.';
COMMENT ON COLUMN report.availability.allocated IS 'Devices of which a claim held at least a share.';
COMMENT ON COLUMN report.availability.available IS 'Devices that no claim held, and that a claim could get.';
COMMENT ON COLUMN report.availability.partial IS 'Allocated devices with shares that a claim could still get.';
COMMENT ON COLUMN report.availability.unavailable IS
    'Devices that no claim held and none could get: because of a taint, counters or the pool.';
