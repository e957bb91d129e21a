CREATE FUNCTION report.contradictions_at(at timestamptz) RETURNS SETOF gpuledger_live.contradiction
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        contradiction.kind,
        contradiction.subject,
        contradiction.first,
        contradiction.first_at,
        contradiction.second,
        contradiction.second_at,
        contradiction.valid_from,
        CASE WHEN contradiction.valid_to <= at THEN contradiction.valid_to END
    FROM gpuledger_live.contradiction AS contradiction
    WHERE contradiction.valid_from <= at;
END;

COMMENT ON FUNCTION report.contradictions_at(timestamptz) IS
    'Contradictions that had begun by then; those that ended later are still open.';
