CREATE FUNCTION report.bad_slot_devices_min() RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN 2;

COMMENT ON FUNCTION report.bad_slot_devices_min() IS
    'How many different devices have incidents or fail in a slot before report.bad_slots has it.';
