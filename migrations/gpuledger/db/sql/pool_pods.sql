CREATE VIEW report.pool_pods AS
SELECT
    target.pool,
    requested.resource,
    split_part(pod.pod, '/', 1) AS namespace,
    split_part(pod.pod, '/', 2) AS pod,
    requested.units::bigint AS units,
    pod.node,
    pod.bound_at AS since
FROM gpuledger_live.pool_pod AS pod
CROSS JOIN LATERAL jsonb_each_text(pod.requests::jsonb) AS requested (resource, units)
CROSS JOIN LATERAL (
    -- Pods have the GPUPools of their own namespace, and every ClusterGPUPool.
    SELECT CASE split_part(requested.resource, '/', 1)
        WHEN 'gpu.deckhouse.io' THEN split_part(pod.pod, '/', 1) || '/' || split_part(requested.resource, '/', 2)
        WHEN 'cluster.gpu.deckhouse.io' THEN split_part(requested.resource, '/', 2)
    END AS pool
) AS target
WHERE target.pool IS NOT NULL AND requested.units::bigint > 0
ORDER BY target.pool, namespace, pod;

COMMENT ON VIEW report.pool_pods IS
    'One row per existing pod and GPUPool or ClusterGPUPool whose units it requests: who requests what, and who has it.';
COMMENT ON COLUMN report.pool_pods.pool IS 'The pool: namespace/name of a GPUPool, name of a ClusterGPUPool; it need not exist.';
COMMENT ON COLUMN report.pool_pods.resource IS 'The extended resource that the pod requests.';
COMMENT ON COLUMN report.pool_pods.namespace IS 'The pod''s namespace.';
COMMENT ON COLUMN report.pool_pods.pod IS 'The pod''s name.';
COMMENT ON COLUMN report.pool_pods.units IS 'Number of units that it requests.';
COMMENT ON COLUMN report.pool_pods.node IS 'The node that it is bound to and holds them on; null while it is bound to none.';
COMMENT ON COLUMN report.pool_pods.since IS 'When it was first observed on that node; null while it is bound to none.';
