CREATE VIEW report.config_drift AS
SELECT
    coalesce(machine.pool, machine.decided_pool) AS pool,
    machine.node,
    machine.phase,
    machine.since,
    machine.current_revision,
    machine.desired_revision,
    status.target_revision,
    machine.agent_state,
    machine.reboot_pending,
    machine.cordoned,
    machine.drain_retries,
    machine.reason,
    CASE WHEN machine.message = '' THEN machine.last_error ELSE machine.message END AS message
FROM gpuledger_live.machine_config_node AS machine
INNER JOIN gpuledger_live.machine_config_pool_status AS status ON coalesce(machine.pool, machine.decided_pool) = status.pool
WHERE machine.uid IS NOT NULL
    AND (
        machine.current_revision IS DISTINCT FROM status.target_revision
        OR machine.agent_state = 'error'
        OR machine.phase <> 'Idle'
    )
ORDER BY pool, machine.node;

COMMENT ON VIEW report.config_drift IS
    'One row per node that does not have what its MachineConfigPool rolls out, or whose agent reports an error.';
COMMENT ON COLUMN report.config_drift.pool IS 'The MachineConfigPool.';
COMMENT ON COLUMN report.config_drift.node IS 'The node.';
COMMENT ON COLUMN report.config_drift.phase IS 'How far its update is: Idle, Draining, Applying or Failed.';
COMMENT ON COLUMN report.config_drift.since IS 'Since when; null if nothing was decided about it.';
COMMENT ON COLUMN report.config_drift.current_revision IS 'The RenderedMachineConfig that it has; null if it has none.';
COMMENT ON COLUMN report.config_drift.desired_revision IS 'The one that it is to have, as its annotation says; null if none was set.';
COMMENT ON COLUMN report.config_drift.target_revision IS 'The one that all nodes of the pool are to have; null if there is none.';
COMMENT ON COLUMN report.config_drift.agent_state IS 'What its agent does: idle, applying, rebooting, done or error; null if it says nothing.';
COMMENT ON COLUMN report.config_drift.reboot_pending IS 'Whether it has still to reboot.';
COMMENT ON COLUMN report.config_drift.cordoned IS 'Whether the rollout has it set aside.';
COMMENT ON COLUMN report.config_drift.drain_retries IS 'How many retry intervals its drain outlasted.';
COMMENT ON COLUMN report.config_drift.reason IS 'Why it failed or waits; empty if there is none.';
COMMENT ON COLUMN report.config_drift.message IS 'The same in a sentence, or the agent''s last error; empty if there is none.';
