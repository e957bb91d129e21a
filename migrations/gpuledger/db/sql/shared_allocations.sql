CREATE VIEW report.shared_allocations AS
SELECT
    held.namespace,
    held.pod,
    held.uid,
    held.node,
    held.type,
    held.minor,
    held.id,
    held.core,
    round(held.memory / 1073741824.0, 2) AS memory_gib,
    held.ratio,
    held.valid_from,
    held.valid_to
FROM gpuledger_live.shared_allocation AS held
ORDER BY held.valid_from DESC, held.pod, held.uid, held.node, held.type, held.minor;

COMMENT ON VIEW report.shared_allocations IS
    'One row per pod and shared device of which it holds or held something, from when to when. The latest first.';
COMMENT ON COLUMN report.shared_allocations.namespace IS 'The namespace of the pod.';
COMMENT ON COLUMN report.shared_allocations.pod IS 'The pod, as NAMESPACE/NAME.';
COMMENT ON COLUMN report.shared_allocations.uid IS 'The UID of the pod, as its name may come again.';
COMMENT ON COLUMN report.shared_allocations.node IS 'The node of the device.';
COMMENT ON COLUMN report.shared_allocations.type IS 'The type of the device, such as gpu or rdma.';
COMMENT ON COLUMN report.shared_allocations.minor IS 'The minor number of the device among those of its type in the node.';
COMMENT ON COLUMN report.shared_allocations.id IS 'The UUID of a GPU, the bus id of a NIC; null if nobody wrote it.';
COMMENT ON COLUMN report.shared_allocations.core IS 'How much computing power it holds, in percent of a GPU; null for other devices.';
COMMENT ON COLUMN report.shared_allocations.memory_gib IS 'How much memory it holds, in GiB; null for other devices than GPUs.';
COMMENT ON COLUMN report.shared_allocations.ratio IS 'How much it holds in percent: of a GPU''s memory, or of another device.';
COMMENT ON COLUMN report.shared_allocations.valid_from IS 'Since when: its reservation, or when its annotation was first observed.';
COMMENT ON COLUMN report.shared_allocations.valid_to IS 'Until when; null while it holds it.';
