CREATE FUNCTION report.repeated_min() RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN 3;

COMMENT ON FUNCTION report.repeated_min() IS
    'How often a code is reported of one entity within 24 hours before report.repeated_codes has it.';
