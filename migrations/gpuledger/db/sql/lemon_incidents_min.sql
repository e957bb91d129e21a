CREATE FUNCTION report.lemon_incidents_min() RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN 2;

COMMENT ON FUNCTION report.lemon_incidents_min() IS
    'How many incidents a device has before report.lemons has it.';
