DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'gpuledger_reader') THEN
        RETURN;
    END IF;
    GRANT USAGE ON SCHEMA gpuledger, gpuledger_live, report TO gpuledger_reader;
    GRANT SELECT ON ALL TABLES IN SCHEMA gpuledger, gpuledger_live, report TO gpuledger_reader;
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA report TO gpuledger_reader;
    -- A rebuild creates its tables in gpuledger_next and moves them, rights and all.
    ALTER DEFAULT PRIVILEGES IN SCHEMA gpuledger, gpuledger_live, gpuledger_next
        GRANT SELECT ON TABLES TO gpuledger_reader;
END
$$;
