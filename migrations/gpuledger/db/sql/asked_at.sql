CREATE FUNCTION report.asked_at() RETURNS timestamptz
LANGUAGE sql STABLE
RETURN now();

COMMENT ON FUNCTION report.asked_at() IS
    'The moment that a query is about: now, or what `gpuledger sql` was given as --at, or else the time of recording.';
