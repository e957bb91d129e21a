DO $$
DECLARE
    statements text[] := ARRAY(
        SELECT format('DROP VIEW IF EXISTS report.%I CASCADE', relname)
        FROM pg_class
        WHERE relnamespace = 'report'::regnamespace AND relkind = 'v'
        UNION ALL
        SELECT format('DROP FUNCTION IF EXISTS %s CASCADE', oid::regprocedure)
        FROM pg_proc
        WHERE pronamespace = 'report'::regnamespace
        UNION ALL
        SELECT format('DROP TYPE IF EXISTS report.%I CASCADE', relname)
        FROM pg_class
        WHERE relnamespace = 'report'::regnamespace AND relkind = 'c'
    );
    statement text;
BEGIN
    FOREACH statement IN ARRAY statements LOOP
        EXECUTE statement;
    END LOOP;
END
$$;

COMMENT ON SCHEMA report IS 'Documented views and functions; every migration and rebuild creates them again.';
