CREATE VIEW report.queue_waits AS
SELECT
    owner,
    workload_class AS class,
    count(*) AS workloads,
    count(*) FILTER (WHERE phase = 'Unscheduled') AS never_scheduled,
    count(*) FILTER (WHERE phase = 'Pending') AS pending,
    round((percentile_cont(0.5) WITHIN GROUP (ORDER BY wait_s))::numeric, 3) AS p50_s,
    round((percentile_cont(0.9) WITHIN GROUP (ORDER BY wait_s))::numeric, 3) AS p90_s,
    round((percentile_cont(0.99) WITHIN GROUP (ORDER BY wait_s))::numeric, 3) AS p99_s,
    round(max(wait_s)::numeric, 3) AS max_s
FROM (
    SELECT
        owner,
        workload_class,
        phase,
        CASE WHEN scheduled_at < submitted_at THEN 0 ELSE extract(epoch FROM first_scheduled_at - submitted_at) END
            ::double precision AS wait_s
    FROM gpuledger_live.workload AS workload
    LEFT JOIN (
        SELECT scheduled.workload AS scheduled, min(scheduled.happened_at) AS first_scheduled_at
        FROM gpuledger_live.workload_fact AS scheduled
        JOIN gpuledger_live.workload AS submitted ON submitted.workload = scheduled.workload
        WHERE scheduled.kind = 'scheduled' AND scheduled.happened_at >= submitted.submitted_at
        GROUP BY scheduled.workload
    ) AS first_scheduling ON first_scheduling.scheduled = workload.workload
) AS waited
GROUP BY owner, workload_class
ORDER BY owner, class;

COMMENT ON VIEW report.queue_waits IS 'How long workloads waited from submission to the first scheduling after it, by owner and class of service.';
COMMENT ON COLUMN report.queue_waits.owner IS 'Who submitted the workloads; null if not recorded.';
COMMENT ON COLUMN report.queue_waits.class IS 'Their class of service; null if not recorded.';
COMMENT ON COLUMN report.queue_waits.workloads IS 'Number of workloads.';
COMMENT ON COLUMN report.queue_waits.never_scheduled IS 'How many of them ended without being scheduled.';
COMMENT ON COLUMN report.queue_waits.pending IS 'How many of them are still waiting.';
COMMENT ON COLUMN report.queue_waits.p50_s IS 'The median wait of those that were scheduled, in seconds.';
COMMENT ON COLUMN report.queue_waits.p90_s IS 'The wait that nine in ten did not exceed, in seconds.';
COMMENT ON COLUMN report.queue_waits.p99_s IS 'The wait that 99 in 100 did not exceed, in seconds.';
COMMENT ON COLUMN report.queue_waits.max_s IS 'The longest wait, in seconds.';
