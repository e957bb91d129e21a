CREATE VIEW report.pool_pods AS
SELECT
    meant.pool,
    asked.resource,
    split_part(pod.pod, '/', 1) AS namespace,
    split_part(pod.pod, '/', 2) AS pod,
    asked.units::bigint AS units,
    pod.node,
    pod.bound_at AS since
FROM gpuledger_live.pool_pod AS pod
CROSS JOIN LATERAL jsonb_each_text(pod.requests::jsonb) AS asked (resource, units)
CROSS JOIN LATERAL (
    -- Pods have the GPUPools of their own namespace, and every ClusterGPUPool.
    SELECT CASE split_part(asked.resource, '/', 1)
        WHEN 'gpu.deckhouse.io' THEN split_part(pod.pod, '/', 1) || '/' || split_part(asked.resource, '/', 2)
        WHEN 'cluster.gpu.deckhouse.io' THEN split_part(asked.resource, '/', 2)
    END AS pool
) AS meant
WHERE meant.pool IS NOT NULL AND asked.units::bigint > 0
ORDER BY meant.pool, namespace, pod;

COMMENT ON VIEW report.pool_pods IS
    'One row per existing pod and GPUPool or ClusterGPUPool whose units it requests: who requests what, and who has it.';
COMMENT ON COLUMN report.pool_pods.pool IS 'The pool: namespace/name of a GPUPool, name of a ClusterGPUPool; it need not exist.';
COMMENT ON COLUMN report.pool_pods.resource IS 'The extended resource that the pod requests.';
COMMENT ON COLUMN report.pool_pods.namespace IS 'The pod''s namespace.';
COMMENT ON COLUMN report.pool_pods.pod IS 'The pod''s name.';
COMMENT ON COLUMN report.pool_pods.units IS 'Number of units that it requests.';
COMMENT ON COLUMN report.pool_pods.node IS 'The node that it is bound to and holds them on; null while it is bound to none.';
COMMENT ON COLUMN report.pool_pods.since IS 'When it was first observed on that node; null while it is bound to none.';
