CREATE VIEW report.lifetimes AS
SELECT
    installation.device,
    installation.slot,
    installation.valid_from AS started,
    installation.valid_to AS ended,
    installation.valid_to IS NULL AS in_service,
    counted.until AS counted_to,
    round(extract(epoch FROM counted.until - installation.valid_from) / 86400, 3) AS days,
    CASE WHEN installation.valid_to IS NOT NULL THEN coalesce(
        (
            SELECT string_agg(DISTINCT failure.kind, ',' ORDER BY failure.kind)
            FROM gpuledger_live.failure AS failure
            WHERE failure.device = installation.device AND failure.failed_at = installation.valid_to
        ),
        CASE WHEN installation.retired THEN 'retired' ELSE 'removed' END
    ) END AS end_reason,
    installation.retired,
    installation.model,
    installation.source,
    installation.epoch
FROM gpuledger_live.installation AS installation
LEFT JOIN gpuledger_live.source AS source ON source.source = installation.source AND source.epoch = installation.epoch
CROSS JOIN LATERAL (
    SELECT coalesce(installation.valid_to, greatest(installation.valid_from, coalesce(source.completed_at, now()))) AS until
) AS counted;

COMMENT ON VIEW report.lifetimes IS 'One row per life: a device in a slot, from insertion to removal.';
COMMENT ON COLUMN report.lifetimes.device IS 'The device.';
COMMENT ON COLUMN report.lifetimes.slot IS 'The slot that it sat in.';
COMMENT ON COLUMN report.lifetimes.started IS 'When it was inserted.';
COMMENT ON COLUMN report.lifetimes.ended IS 'When it was removed; null while it is in service.';
COMMENT ON COLUMN report.lifetimes.in_service IS 'Whether it is still there.';
COMMENT ON COLUMN report.lifetimes.counted_to IS
    'Up to when the life counts: its end; if it has none, the end of its source''s data, or now if that source continues.';
COMMENT ON COLUMN report.lifetimes.days IS 'From started to counted_to, in days of 24 hours.';
COMMENT ON COLUMN report.lifetimes.end_reason IS
    'Null in service; otherwise the kind of the failure at its very end (several separated by commas), or else retired or removed.';
COMMENT ON COLUMN report.lifetimes.retired IS 'Whether the device left service for good with this removal.';
COMMENT ON COLUMN report.lifetimes.model IS 'The device''s model as recorded at the insertion.';
COMMENT ON COLUMN report.lifetimes.source IS 'The source that recorded the life.';
COMMENT ON COLUMN report.lifetimes.epoch IS 'The epoch of that source.';
