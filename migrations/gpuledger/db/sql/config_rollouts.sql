CREATE VIEW report.config_rollouts AS
SELECT
    rollout.pool,
    rollout.revision,
    rollout.previous,
    rollout.begun_at,
    rollout.ended_at,
    rollout.outcome,
    rollout.machines,
    rollout.nodes,
    count(DISTINCT change.node) FILTER (WHERE change.outcome = 'Updated') AS updated,
    round(extract(EPOCH FROM coalesce(rollout.ended_at, now()) - rollout.begun_at) / 3600, 4) AS took_h,
    coalesce(sum(change.unavailable_h), 0) AS node_hours_unavailable,
    rollout.unavailable_max,
    rollout.max_unavailable,
    round(avg(change.drain_s), 3) AS mean_drain_s,
    round(avg(change.apply_s) FILTER (WHERE change.outcome = 'Updated'), 3) AS mean_apply_s,
    coalesce(sum(change.drains_failed), 0)::bigint AS drains_failed,
    coalesce(sum(change.failures), 0)::bigint AS failures
FROM gpuledger_live.machine_config_rollout AS rollout
LEFT JOIN report.config_updates AS change
    ON rollout.pool = change.pool
    AND change.begun_at >= rollout.begun_at
    AND (rollout.ended_at IS NULL OR change.begun_at < rollout.ended_at)
GROUP BY rollout.pool, rollout.begun_position
ORDER BY rollout.begun_at DESC, rollout.pool;

COMMENT ON VIEW report.config_rollouts IS
    'One row per rollout of a MachineConfigPool, from the decision on until all its nodes have the revision. The latest first.';
COMMENT ON COLUMN report.config_rollouts.pool IS 'The MachineConfigPool.';
COMMENT ON COLUMN report.config_rollouts.revision IS 'The RenderedMachineConfig that its nodes were to have.';
COMMENT ON COLUMN report.config_rollouts.previous IS 'The one that all of them had last when it began; null if there was none.';
COMMENT ON COLUMN report.config_rollouts.begun_at IS 'When it was decided that nodes have to change.';
COMMENT ON COLUMN report.config_rollouts.ended_at IS 'When it ended; null before.';
COMMENT ON COLUMN report.config_rollouts.outcome IS
    'Complete; Superseded by another revision; Withdrawn with the pool. Null before it ended.';
COMMENT ON COLUMN report.config_rollouts.machines IS 'How many nodes the pool had, at most.';
COMMENT ON COLUMN report.config_rollouts.nodes IS 'How many of them had still to change, at most.';
COMMENT ON COLUMN report.config_rollouts.updated IS 'How many were updated and given back; updates that began meanwhile count.';
COMMENT ON COLUMN report.config_rollouts.took_h IS 'Hours from its beginning to its end, or up to now.';
COMMENT ON COLUMN report.config_rollouts.node_hours_unavailable IS
    'Hours in which nodes were set aside for it, the sum over all nodes, up to now where they still are.';
COMMENT ON COLUMN report.config_rollouts.unavailable_max IS 'How many nodes were unavailable at once, at most, for any reason.';
COMMENT ON COLUMN report.config_rollouts.max_unavailable IS 'How many might be, by the pool.';
COMMENT ON COLUMN report.config_rollouts.mean_drain_s IS 'The mean duration of its drains in seconds; null if nothing was drained.';
COMMENT ON COLUMN report.config_rollouts.mean_apply_s IS
    'The mean time from when an agent was to begin until its node was given back, in seconds; null if none was.';
COMMENT ON COLUMN report.config_rollouts.drains_failed IS 'How many retry intervals its drains outlasted, in all.';
COMMENT ON COLUMN report.config_rollouts.failures IS 'How often updates of nodes failed, in all.';
