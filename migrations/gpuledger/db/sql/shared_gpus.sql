CREATE VIEW report.shared_gpus AS
SELECT
    card.node,
    card.minor,
    card.id,
    card.model,
    card.healthy,
    card.core,
    card.core_used,
    round(card.memory / 1073741824.0, 2) AS memory_gib,
    round(card.memory_used / 1073741824.0, 2) AS memory_used_gib,
    card.ratio,
    card.ratio_used,
    card.pods,
    card.holders
FROM gpuledger_live.shared_device AS card
WHERE card.type = 'gpu'
ORDER BY card.node, card.minor;

COMMENT ON VIEW report.shared_gpus IS 'One row per GPU that its node shares, with how much of it pods hold, and which.';
COMMENT ON COLUMN report.shared_gpus.node IS 'The node.';
COMMENT ON COLUMN report.shared_gpus.minor IS 'The minor number of the GPU in its node.';
COMMENT ON COLUMN report.shared_gpus.id IS 'The UUID of the GPU.';
COMMENT ON COLUMN report.shared_gpus.model IS 'The model of the node''s GPUs.';
COMMENT ON COLUMN report.shared_gpus.healthy IS 'Whether pods can get anything of it.';
COMMENT ON COLUMN report.shared_gpus.core IS 'Its computing power, in percent of a GPU.';
COMMENT ON COLUMN report.shared_gpus.core_used IS 'How much of that pods hold.';
COMMENT ON COLUMN report.shared_gpus.memory_gib IS 'Its memory in GiB.';
COMMENT ON COLUMN report.shared_gpus.memory_used_gib IS 'How much of that pods hold.';
COMMENT ON COLUMN report.shared_gpus.ratio IS 'Its memory in percent of itself.';
COMMENT ON COLUMN report.shared_gpus.ratio_used IS 'How much of that pods hold.';
COMMENT ON COLUMN report.shared_gpus.pods IS 'Number of pods that hold some of it.';
COMMENT ON COLUMN report.shared_gpus.holders IS 'These pods, as NAMESPACE/NAME, separated by commas.';
