CREATE FUNCTION report.shared_devices_at(at timestamptz) RETURNS SETOF gpuledger_live.shared_device
LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH device AS (
        -- Of two devices of one minor the later one counts.
        SELECT DISTINCT ON (version.node, device ->> 'type', (device ->> 'minor')::bigint)
            version.node,
            version.model,
            device ->> 'type' AS type,
            (device ->> 'minor')::bigint AS minor,
            device ->> 'id' AS id,
            (device ->> 'healthy')::boolean AS healthy,
            device -> 'resources' AS resources
        FROM gpuledger_live.shared_node_history AS version
        CROSS JOIN LATERAL jsonb_array_elements(version.devices::jsonb) WITH ORDINALITY AS listed (device, place)
        WHERE version.present AND version.valid_from <= at AND (version.valid_to IS NULL OR version.valid_to > at)
        ORDER BY version.node, device ->> 'type', (device ->> 'minor')::bigint, listed.place DESC
    ),
    allocated AS (
        SELECT allocation.*
        FROM gpuledger_live.shared_allocation AS allocation
        WHERE report.is_kept('shared_allocation', at)
            AND allocation.valid_from <= at AND (allocation.valid_to IS NULL OR allocation.valid_to > at)
    ),
    holder AS (
        SELECT node, type, minor, core, memory, ratio, pod
        FROM allocated
        UNION ALL
        -- A pod that has a GPU without an allocation holds all of it.
        SELECT
            version.node,
            'gpu',
            device.minor,
            coalesce((device.resources ->> 'gpu-core')::bigint, 0),
            coalesce((device.resources ->> 'gpu-memory')::bigint, 0),
            coalesce((device.resources ->> 'gpu-memory-ratio')::bigint, 0),
            listed.pod ->> 0
        FROM gpuledger_live.shared_checkpoints_history AS version
        CROSS JOIN LATERAL jsonb_array_elements(version.checkpoints::jsonb) AS listed (pod)
        CROSS JOIN LATERAL jsonb_array_elements_text(listed.pod -> 1) AS held (uuid)
        INNER JOIN device ON device.node = version.node AND device.type = 'gpu' AND device.id = held.uuid
        WHERE version.valid_from <= at AND (version.valid_to IS NULL OR version.valid_to > at)
            AND NOT EXISTS (
                SELECT FROM allocated WHERE allocated.node = version.node AND allocated.uid = listed.pod ->> 0
            )
    ),
    held AS (
        SELECT
            holder.node,
            holder.type,
            holder.minor,
            sum(holder.core)::bigint AS core,
            sum(holder.memory)::bigint AS memory,
            sum(holder.ratio)::bigint AS ratio,
            count(*) AS pods,
            string_agg(holder.pod, ',' ORDER BY holder.pod COLLATE "C") AS holders
        FROM holder
        GROUP BY holder.node, holder.type, holder.minor
    )
    SELECT
        device.node,
        device.type,
        device.minor,
        device.id,
        CASE WHEN device.type = 'gpu' THEN device.model END,
        device.healthy,
        CASE WHEN device.type = 'gpu' THEN coalesce((device.resources ->> 'gpu-core')::bigint, 0) END,
        CASE WHEN device.type = 'gpu' THEN coalesce(held.core, 0) END,
        CASE WHEN device.type = 'gpu' THEN coalesce((device.resources ->> 'gpu-memory')::bigint, 0) END,
        CASE WHEN device.type = 'gpu' THEN coalesce(held.memory, 0) END,
        CASE
            WHEN device.type = 'gpu' THEN coalesce((device.resources ->> 'gpu-memory-ratio')::bigint, 0)
            ELSE (device.resources ->> device.type)::bigint
        END,
        coalesce(held.ratio, 0),
        coalesce(held.pods, 0),
        coalesce(held.holders, '')
    FROM device
    LEFT JOIN held ON held.node = device.node AND held.type = device.type AND held.minor = device.minor;
END;

COMMENT ON FUNCTION report.shared_devices_at(timestamptz) IS
    'Devices that nodes shared then, with what pods held of them: the columns of gpuledger_live.shared_device.';
