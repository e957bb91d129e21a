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
    LEFT JOIN gpuledger_live.node_history AS version
        ON version.node = node.node
        AND version.valid_from <= at
        AND (version.valid_to IS NULL OR version.valid_to > at)
    LEFT JOIN (
        SELECT node_slot.node, count(*) AS slots
        FROM gpuledger_live.node_slot AS node_slot
        WHERE node_slot.declared_at <= at
        GROUP BY node_slot.node
    ) AS declared ON declared.node = node.node
    WHERE node.first_seen_at <= at;
END;

COMMENT ON FUNCTION report.nodes_at(timestamptz) IS
    'Nodes known by then, in their state at that time: the columns of gpuledger_live.node.';
