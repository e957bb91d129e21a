CREATE FUNCTION report.location_of(slot text, node text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(substring(slot FROM '^(c[0-9]+-[0-9]+)c[0-9]+s[0-9]+n[0-9]+$'), node, slot);

COMMENT ON FUNCTION report.location_of(text, text) IS
    'The rough location of a slot: the cabinet if the slot has a Cray name (c11-2c1s4n1 is in c11-2), otherwise its node, otherwise the slot itself.';
