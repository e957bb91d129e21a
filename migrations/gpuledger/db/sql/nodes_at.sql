CREATE FUNCTION report.nodes_at(at timestamptz) RETURNS SETOF gpuledger_live.node
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        node.node,
        node.first_seen_at,
        coalesce(version.present, true),
        version.gpu_count,
        version.gpu_model,
        version.cpu_milli,
        version.memory_mib,
        coalesce(declared.slots, 0)
    FROM gpuledger_live.node AS node
    LEFT JOIN LATERAL (
        SELECT history.*
        FROM gpuledger_live.node_history AS history
        WHERE history.node = node.node AND history.valid_from <= at
        ORDER BY history.valid_from DESC
        LIMIT 1
    ) AS version ON true
    LEFT JOIN LATERAL (
        SELECT count(*) AS slots
        FROM gpuledger_live.node_slot AS node_slot
        WHERE node_slot.node = node.node AND node_slot.declared_at <= at
    ) AS declared ON true
    WHERE node.first_seen_at <= at;
END;

COMMENT ON FUNCTION report.nodes_at(timestamptz) IS
    'Nodes known by then, in their state at that time: the columns of gpuledger_live.node.';
