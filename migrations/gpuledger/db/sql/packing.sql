CREATE VIEW report.packing AS
WITH card AS (
    SELECT
        node,
        coalesce(model, 'unknown') AS model,
        healthy,
        pods,
        coalesce(ratio, 0) AS ratio,
        ratio_used,
        CASE
            WHEN pods = 0 THEN 'empty'
            WHEN ratio_used >= ratio OR core_used >= core THEN 'full'
            ELSE 'partly used'
        END AS state
    FROM gpuledger_live.shared_device
    WHERE type = 'gpu'
)
SELECT
    CASE WHEN grouping(node) = 0 THEN 'node' WHEN grouping(model) = 0 THEN 'model' ELSE 'all' END AS per,
    CASE WHEN grouping(model) = 0 THEN model END AS model,
    CASE WHEN grouping(node) = 0 THEN node END AS node,
    count(*) AS gpus,
    count(*) FILTER (WHERE NOT healthy) AS unhealthy,
    count(*) FILTER (WHERE state = 'empty') AS empty,
    count(*) FILTER (WHERE state = 'partly used') AS partly_used,
    count(*) FILTER (WHERE state = 'full') AS full_gpus,
    count(*) FILTER (WHERE pods > 1) AS shared,
    round(avg(pods) FILTER (WHERE pods > 0), 2) AS pods_per_used_gpu,
    max(pods) AS most_pods,
    round(sum(ratio_used) / 100.0, 2) AS allocated_gpus,
    round(sum(ratio_used) / nullif(sum(ratio), 0), 4) AS allocation_rate
FROM card
GROUP BY GROUPING SETS ((), (model), (model, node))
HAVING count(*) > 0
ORDER BY 1, 2, 3;

COMMENT ON VIEW report.packing IS
    'How densely pods are packed on shared GPUs: how many are empty, partly used and full. In all, per model, and per node.';
COMMENT ON COLUMN report.packing.per IS 'What the row is about: all, model or node.';
COMMENT ON COLUMN report.packing.model IS 'The model; null in the row about all.';
COMMENT ON COLUMN report.packing.node IS 'The node; null in rows about several.';
COMMENT ON COLUMN report.packing.gpus IS 'Number of GPUs that are shared.';
COMMENT ON COLUMN report.packing.unhealthy IS 'How many of them are unhealthy, so that no further pod gets anything of them.';
COMMENT ON COLUMN report.packing.empty IS 'How many no pod holds anything of.';
COMMENT ON COLUMN report.packing.partly_used IS 'How many have computing power and memory left beside what pods hold.';
COMMENT ON COLUMN report.packing.full_gpus IS 'How many have no computing power or no memory left.';
COMMENT ON COLUMN report.packing.shared IS 'How many several pods hold parts of.';
COMMENT ON COLUMN report.packing.pods_per_used_gpu IS 'How many pods a GPU has on average that is not empty; null if all are.';
COMMENT ON COLUMN report.packing.most_pods IS 'The most pods that one GPU has.';
COMMENT ON COLUMN report.packing.allocated_gpus IS 'How much is held, as a number of GPUs, by memory.';
COMMENT ON COLUMN report.packing.allocation_rate IS 'That as a part of all memory.';
