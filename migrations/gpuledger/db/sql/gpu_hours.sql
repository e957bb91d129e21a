CREATE VIEW report.gpu_hours AS
SELECT owner, class, round(sum(gpus * hours), 6) AS gpu_hours
FROM report.allocation
GROUP BY owner, class
ORDER BY gpu_hours DESC, owner, class;

COMMENT ON VIEW report.gpu_hours IS 'GPU-hours that workloads held, by owner and class of service.';
COMMENT ON COLUMN report.gpu_hours.owner IS 'Who submitted the workloads; null if not recorded.';
COMMENT ON COLUMN report.gpu_hours.class IS 'Their class of service; null if not recorded.';
COMMENT ON COLUMN report.gpu_hours.gpu_hours IS
    'GPUs times hours, fractions of a GPU as fractions; an allocation that is still held counts to the end of its source''s data or to now.';
