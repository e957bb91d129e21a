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

COMMENT ON TYPE report.workload_then IS 'A row of report.workloads_at.';

CREATE FUNCTION report.workloads_at(at timestamptz) RETURNS SETOF report.workload_then
LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH fact AS (
        -- Of each kind what had happened last by then; the key has the kinds of one workload side by side.
        SELECT DISTINCT ON (recorded.workload, recorded.kind) recorded.*
        FROM gpuledger_live.workload_fact AS recorded
        WHERE recorded.happened_at <= at
        ORDER BY recorded.workload, recorded.kind, recorded.happened_at DESC
    ),
    latest AS (
        SELECT
            fact.workload,
            max(fact.owner) FILTER (WHERE fact.kind = 'submitted') AS owner,
            max(fact.workload_class) FILTER (WHERE fact.kind = 'submitted') AS workload_class,
            max(fact.gpu_milli) FILTER (WHERE fact.kind = 'submitted') AS gpu_milli,
            max(fact.cpu_milli) FILTER (WHERE fact.kind = 'submitted') AS cpu_milli,
            max(fact.memory_mib) FILTER (WHERE fact.kind = 'submitted') AS memory_mib,
            max(fact.node) FILTER (WHERE fact.kind = 'scheduled') AS node,
            max(fact.outcome) FILTER (WHERE fact.kind = 'ended') AS outcome,
            max(fact.happened_at) FILTER (WHERE fact.kind = 'submitted') AS submitted_at,
            max(fact.happened_at) FILTER (WHERE fact.kind = 'scheduled') AS scheduled_at,
            max(fact.happened_at) FILTER (WHERE fact.kind = 'ended') AS ended_at
        FROM fact
        GROUP BY fact.workload
    )
    SELECT
        latest.workload,
        CASE
            WHEN latest.ended_at >= latest.scheduled_at THEN 'Ended'
            WHEN latest.ended_at IS NOT NULL AND latest.scheduled_at IS NULL THEN 'Unscheduled'
            WHEN latest.scheduled_at IS NOT NULL THEN 'Running'
            ELSE 'Pending'
        END,
        latest.owner,
        latest.workload_class,
        latest.gpu_milli,
        latest.cpu_milli,
        latest.memory_mib,
        latest.node,
        latest.outcome,
        latest.submitted_at,
        latest.scheduled_at,
        latest.ended_at
    FROM latest;
END;

COMMENT ON FUNCTION report.workloads_at(timestamptz) IS
    'Workloads known by then, in their state at that time.';
