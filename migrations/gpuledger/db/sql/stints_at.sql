CREATE FUNCTION report.stints_at(at timestamptz) RETURNS SETOF gpuledger_live.stint
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        stint.device,
        stint.slot,
        stint.valid_from,
        CASE WHEN stint.valid_to <= at THEN stint.valid_to END,
        stint.retired AND stint.valid_to <= at,
        stint.serial,
        stint.uuid,
        stint.model,
        stint.source,
        stint.epoch
    FROM gpuledger_live.stint AS stint
    WHERE stint.valid_from <= at;
END;

COMMENT ON FUNCTION report.stints_at(timestamptz) IS
    'Lives that had begun by then; those that ended later are open, as they were.';
