CREATE TYPE report.workload_then AS (
    workload text COLLATE "C",
    phase text COLLATE "C",
    owner text COLLATE "C",
    workload_class text COLLATE "C",
    gpu_milli bigint,
    cpu_milli bigint,
    memory_mib bigint,
    node text COLLATE "C",
    outcome text COLLATE "C",
    submitted_at timestamptz,
    scheduled_at timestamptz,
    ended_at timestamptz
);

COMMENT ON TYPE report.workload_then IS 'A workload as report.workloads_at gives it.';

CREATE FUNCTION report.workloads_at(at timestamptz) RETURNS SETOF report.workload_then
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        workload.workload,
        CASE
            WHEN workload.ended_at <= at AND workload.scheduled_at <= at THEN 'Ended'
            WHEN workload.ended_at <= at THEN 'Unscheduled'
            WHEN workload.scheduled_at <= at THEN 'Running'
            ELSE 'Pending'
        END,
        CASE WHEN workload.submitted_at <= at THEN workload.owner END,
        CASE WHEN workload.submitted_at <= at THEN workload.workload_class END,
        CASE WHEN workload.submitted_at <= at THEN workload.gpu_milli END,
        CASE WHEN workload.submitted_at <= at THEN workload.cpu_milli END,
        CASE WHEN workload.submitted_at <= at THEN workload.memory_mib END,
        CASE WHEN workload.scheduled_at <= at THEN workload.node END,
        CASE WHEN workload.ended_at <= at THEN workload.outcome END,
        CASE WHEN workload.submitted_at <= at THEN workload.submitted_at END,
        CASE WHEN workload.scheduled_at <= at THEN workload.scheduled_at END,
        CASE WHEN workload.ended_at <= at THEN workload.ended_at END
    FROM gpuledger_live.workload AS workload
    WHERE least(workload.submitted_at, workload.scheduled_at, workload.ended_at) <= at;
END;

COMMENT ON FUNCTION report.workloads_at(timestamptz) IS
    'Workloads known by then, with what had happened to them by then. Of several facts of one kind about one workload only the last is kept, and counts from its own time on.';
