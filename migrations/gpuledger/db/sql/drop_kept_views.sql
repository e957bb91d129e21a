-- A view follows a table that moves away, so it is dropped before. One that is not ours to drop is noted.
DO $$
DECLARE
    kept record;
BEGIN
    FOR kept IN SELECT *, format('%I.%I', schema_name, view_name) AS name FROM pg_temp.kept_view ORDER BY depth DESC LOOP
        BEGIN
            EXECUTE format(
                'DROP %s IF EXISTS %s CASCADE',
                CASE kept.kind WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'VIEW' END, kept.name
            );
        EXCEPTION WHEN insufficient_privilege THEN
            INSERT INTO gpuledger.lost_view AS lost (name, owner, definition, reason)
            VALUES (kept.name, kept.owner, kept.definition, SQLERRM || '; it reads the rows of before')
            ON CONFLICT ON CONSTRAINT lost_view_pkey DO UPDATE
            SET owner = excluded.owner, definition = excluded.definition, reason = excluded.reason, lost_at = now();
        END;
    END LOOP;
END
$$;
