CREATE VIEW report.config_updates AS
SELECT
    change.pool,
    change.node,
    change.revision,
    change.phase,
    change.begun_at,
    change.applying_at,
    change.ended_at,
    change.outcome,
    CASE WHEN change.drained THEN
        round(extract(EPOCH FROM coalesce(change.applying_at, change.ended_at, now()) - change.begun_at), 3)
    END AS drain_s,
    round(extract(EPOCH FROM coalesce(change.ended_at, now()) - change.applying_at), 3) AS apply_s,
    round(extract(EPOCH FROM coalesce(change.ended_at, now()) - change.begun_at) / 3600, 4) AS unavailable_h,
    change.drains_failed,
    change.is_stuck,
    change.failures,
    change.failed_at,
    change.reason,
    change.message
FROM gpuledger_live.machine_config_update AS change
ORDER BY change.begun_at DESC, change.node;

COMMENT ON VIEW report.config_updates IS
    'One row per update of a node''s machine configuration, from the request for its drain on. The latest first.';
COMMENT ON COLUMN report.config_updates.pool IS 'The MachineConfigPool.';
COMMENT ON COLUMN report.config_updates.node IS 'The node.';
COMMENT ON COLUMN report.config_updates.revision IS
    'The RenderedMachineConfig that it was to have last; null while it drains for the first.';
COMMENT ON COLUMN report.config_updates.phase IS 'How far it is: Draining, Applying or Failed; Idle where it has ended.';
COMMENT ON COLUMN report.config_updates.begun_at IS 'When the node was set aside, or its agent was to begin.';
COMMENT ON COLUMN report.config_updates.applying_at IS 'When its agent was to begin; null before.';
COMMENT ON COLUMN report.config_updates.ended_at IS 'When the node was given back; null before.';
COMMENT ON COLUMN report.config_updates.outcome IS
    'Updated; Returned, before its agent was to begin; or Left: its pool has it no more. Null before it ended.';
COMMENT ON COLUMN report.config_updates.drain_s IS 'Seconds of its drain, up to now while it drains; null if it was not drained.';
COMMENT ON COLUMN report.config_updates.apply_s IS
    'Seconds from when its agent was to begin until it was given back, or up to now; null before.';
COMMENT ON COLUMN report.config_updates.unavailable_h IS 'Hours from its beginning to its end, or up to now.';
COMMENT ON COLUMN report.config_updates.drains_failed IS 'How many retry intervals its drain outlasted.';
COMMENT ON COLUMN report.config_updates.is_stuck IS 'Whether its drain outlasted the pool''s time-out.';
COMMENT ON COLUMN report.config_updates.failures IS 'How often it failed.';
COMMENT ON COLUMN report.config_updates.failed_at IS 'When it failed last; null if it never did.';
COMMENT ON COLUMN report.config_updates.reason IS 'Why it failed last; empty if it never did.';
COMMENT ON COLUMN report.config_updates.message IS 'The same in a sentence; empty if it never did.';
