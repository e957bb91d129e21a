CREATE VIEW report.gpu_hours AS
SELECT owner, class, round(held_us / 3600000000000, 6) AS gpu_hours
FROM (
    -- What is held from a moment on and given back later counts from there to any one moment, here the epoch's beginning.
    SELECT owner, class, sum(held_us - held * extract(epoch FROM day + interval '24 hours') * 1000000) AS held_us
    FROM report.allocation_changes()
    GROUP BY owner, class
) AS total
WHERE held_us <> 0
ORDER BY gpu_hours DESC, owner, class;

COMMENT ON VIEW report.gpu_hours IS 'GPU-hours that workloads held, by owner and class of service.';
COMMENT ON COLUMN report.gpu_hours.owner IS 'Who submitted the workloads; null if not recorded.';
COMMENT ON COLUMN report.gpu_hours.class IS 'Their class of service; null if not recorded.';
COMMENT ON COLUMN report.gpu_hours.gpu_hours IS
    'GPUs times hours, fractions of a GPU as fractions; an allocation that is still held counts to the end of its source''s data or to now.';
