CREATE FUNCTION report.installations_at(at timestamptz) RETURNS SETOF gpuledger_live.installation
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        installation.device,
        installation.slot,
        installation.valid_from,
        CASE WHEN installation.valid_to <= at THEN installation.valid_to END,
        installation.retired AND installation.valid_to <= at,
        installation.serial,
        installation.uuid,
        installation.model,
        installation.source,
        installation.epoch
    FROM gpuledger_live.installation AS installation
    WHERE installation.valid_from <= at;
END;

COMMENT ON FUNCTION report.installations_at(timestamptz) IS
    'Lives that had begun by then; those that ended later are still open.';
