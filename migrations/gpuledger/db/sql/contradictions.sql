CREATE VIEW report.contradictions AS
SELECT
    contradiction.kind,
    contradiction.subject,
    contradiction.first,
    contradiction.second,
    contradiction.valid_from,
    contradiction.valid_to,
    round(extract(epoch FROM counted.until - contradiction.valid_from) / 3600, 3) AS hours
FROM gpuledger_live.contradiction AS contradiction
CROSS JOIN LATERAL (
    SELECT coalesce(
        contradiction.valid_to,
        (
            SELECT greatest(contradiction.valid_from, min(life.counted_to))
            FROM report.lifetimes AS life
            WHERE (life.device, life.slot, life.started) IN (
                VALUES
                    (
                        CASE contradiction.kind WHEN 'two-devices-in-slot' THEN contradiction.first ELSE contradiction.subject END,
                        CASE contradiction.kind WHEN 'two-devices-in-slot' THEN contradiction.subject ELSE contradiction.first END,
                        contradiction.first_at
                    ),
                    (
                        CASE contradiction.kind WHEN 'two-devices-in-slot' THEN contradiction.second ELSE contradiction.subject END,
                        CASE contradiction.kind WHEN 'two-devices-in-slot' THEN contradiction.subject ELSE contradiction.second END,
                        contradiction.second_at
                    )
            )
        )
    ) AS until
) AS counted
ORDER BY contradiction.valid_from, contradiction.kind, contradiction.subject, contradiction.first, contradiction.second;

COMMENT ON VIEW report.contradictions IS 'Facts that cannot all be true; gpuledger keeps them and repairs none.';
COMMENT ON COLUMN report.contradictions.kind IS
    'two-devices-in-slot, device-in-two-slots, inserted-twice or removed-not-inserted.';
COMMENT ON COLUMN report.contradictions.subject IS 'The slot for two-devices-in-slot, otherwise the device.';
COMMENT ON COLUMN report.contradictions.first IS
    'The device (or slot) of the life that began first; the slot for inserted-twice and removed-not-inserted.';
COMMENT ON COLUMN report.contradictions.second IS
    'The device (or slot) of the other life; empty for inserted-twice and removed-not-inserted.';
COMMENT ON COLUMN report.contradictions.valid_from IS 'Since when both have been recorded as true.';
COMMENT ON COLUMN report.contradictions.valid_to IS 'Until when; null while they still are.';
COMMENT ON COLUMN report.contradictions.hours IS
    'Duration in hours; a contradiction that continues counts to the end of its source''s data or to now. 0 for a single fact.';
