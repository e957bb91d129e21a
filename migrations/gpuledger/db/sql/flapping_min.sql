CREATE FUNCTION report.flapping_min() RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN 3;

COMMENT ON FUNCTION report.flapping_min() IS
    'How often something becomes unhealthy within 24 hours before report.flapping has it.';
