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
    'How many devices of each pool were to be had, over time: one row from one change to the next.';
COMMENT ON COLUMN report.availability.driver IS 'The driver.';
COMMENT ON COLUMN report.availability.pool IS 'Its pool.';
COMMENT ON COLUMN report.availability.node IS
    'The node whose own slices these are, and from which the pool is seen; null for slices of no single node, seen from everywhere.';
COMMENT ON COLUMN report.availability.valid_from IS 'Since when.';
COMMENT ON COLUMN report.availability.valid_to IS 'Until when; null while it stands so.';
COMMENT ON COLUMN report.availability.generation IS 'The pool''s generation that counted.';
COMMENT ON COLUMN report.availability.complete IS 'Whether all slices of that generation were there; an incomplete pool gives no devices.';
COMMENT ON COLUMN report.availability.valid IS 'Whether its slices agreed; a pool that is not valid gives no devices.';
COMMENT ON COLUMN report.availability.total IS 'Devices that the slices published.';
COMMENT ON COLUMN report.availability.allocated IS 'Devices that somebody had, or a share of which somebody had.';
COMMENT ON COLUMN report.availability.available IS 'Devices that nobody had, and that could be had.';
COMMENT ON COLUMN report.availability.partial IS 'Those of the allocated devices of which more shares could be had.';
COMMENT ON COLUMN report.availability.unavailable IS
    'Devices that nobody had, and that could not be had: for a taint, for counters or because of the pool.';
