CREATE VIEW report.oversubscription AS
WITH present AS (
    SELECT held.*
    FROM gpuledger_live.shared_allocation AS held
    INNER JOIN gpuledger_live.shared_node AS node ON node.node = held.node AND node.present
    WHERE held.valid_to IS NULL
)
SELECT
    'more than the device has' AS problem,
    device.node,
    device.type,
    device.minor,
    device.id,
    device.holders AS pods,
    amount.resource,
    amount.total,
    amount.used,
    NULL::text AS reserved,
    NULL::text AS annotation,
    NULL::text AS message
FROM gpuledger_live.shared_device AS device
CROSS JOIN LATERAL (
    VALUES
    ('core', device.core, device.core_used),
    ('memory', device.memory, device.memory_used),
    ('ratio', device.ratio, device.ratio_used)
) AS amount (resource, total, used)
WHERE amount.used > coalesce(amount.total, 0)
UNION ALL
SELECT
    'device is not shared',
    present.node,
    present.type,
    present.minor,
    min(present.id),
    string_agg(present.pod, ',' ORDER BY present.pod),
    'ratio',
    0,
    sum(present.ratio)::bigint,
    NULL,
    NULL,
    NULL
FROM present
WHERE NOT EXISTS (
    SELECT FROM gpuledger_live.shared_device AS device
    WHERE device.node = present.node AND device.type = present.type AND device.minor = present.minor
)
GROUP BY present.node, present.type, present.minor
UNION ALL
SELECT
    CASE WHEN pod.unreadable IS NULL THEN 'annotation is not the reservation' ELSE 'annotation is unreadable' END,
    pod.observed_node,
    NULL,
    NULL,
    NULL,
    pod.pod,
    NULL,
    NULL,
    NULL,
    pod.reserved_node || ' ' || pod.reservation::text,
    pod.annotation::text,
    pod.unreadable
FROM gpuledger_live.shared_pod AS pod
WHERE pod.over_at IS NULL AND (pod.differs OR (pod.unreadable IS NOT NULL AND pod.observed_node IS NOT NULL))
ORDER BY 1, 2, 3, 4, 6, 7;

COMMENT ON VIEW report.oversubscription IS
    'Shared devices of which pods hold more than there is, and pods whose annotation is not what was reserved for them.';
COMMENT ON COLUMN report.oversubscription.problem IS
    'more than the device has, device is not shared, annotation is not the reservation, or annotation is unreadable.';
COMMENT ON COLUMN report.oversubscription.node IS 'The node of the device, or that the pod is on.';
COMMENT ON COLUMN report.oversubscription.type IS 'The type of the device; null in rows about a pod.';
COMMENT ON COLUMN report.oversubscription.minor IS 'Its minor number; null in rows about a pod.';
COMMENT ON COLUMN report.oversubscription.id IS 'The UUID of a GPU, the bus id of a NIC; null in rows about a pod.';
COMMENT ON COLUMN report.oversubscription.pods IS 'The pods, as NAMESPACE/NAME, separated by commas.';
COMMENT ON COLUMN report.oversubscription.resource IS 'core, memory or ratio; null in rows about a pod.';
COMMENT ON COLUMN report.oversubscription.total IS 'How much the device has: percent, or bytes of memory; null in rows about a pod.';
COMMENT ON COLUMN report.oversubscription.used IS 'How much pods hold; null in rows about a pod.';
COMMENT ON COLUMN report.oversubscription.reserved IS 'Node and devices that were reserved; null in other rows.';
COMMENT ON COLUMN report.oversubscription.annotation IS 'The devices in the annotation, which is what runs; null in other rows.';
COMMENT ON COLUMN report.oversubscription.message IS 'What is wrong with an annotation that cannot be read; null in other rows.';
