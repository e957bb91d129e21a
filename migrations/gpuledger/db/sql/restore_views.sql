-- Makes people's views anew, as they were and whose they were. One that cannot be made is noted, and stops nothing.
DO $$
DECLARE
    kept record;
    statement text;
BEGIN
    FOR kept IN
        SELECT *, format('%I.%I', schema_name, view_name) AS name FROM pg_temp.kept_view ORDER BY depth, schema_name, view_name
    LOOP
        -- The catalog needs no right on the schema, unlike to_regclass.
        CONTINUE WHEN EXISTS (
            SELECT
            FROM pg_class
            JOIN pg_namespace ON pg_namespace.oid = relnamespace
            WHERE nspname = kept.schema_name AND relname = kept.view_name
        );
        BEGIN
            EXECUTE format(
                'CREATE %s %s %s AS %s %s',
                CASE kept.kind WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'VIEW' END,
                kept.name,
                CASE WHEN kept.options IS NOT NULL THEN format('WITH (%s)', array_to_string(kept.options, ', ')) END,
                rtrim(kept.definition, '; '),
                CASE kept.kind WHEN 'm' THEN 'WITH NO DATA' END
            );
            IF kept.comment IS NOT NULL THEN
                EXECUTE format(
                    'COMMENT ON %s %s IS %L',
                    CASE kept.kind WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'VIEW' END, kept.name, kept.comment
                );
            END IF;
            FOREACH statement IN ARRAY kept.indexes || kept.column_comments || kept.grants LOOP
                EXECUTE statement;
            END LOOP;
            EXECUTE format('ALTER TABLE %s OWNER TO %I', kept.name, kept.owner);
            DELETE FROM gpuledger.lost_view AS lost WHERE lost.name = kept.name;
        EXCEPTION
            WHEN query_canceled OR lock_not_available OR deadlock_detected THEN
                RAISE;
            WHEN OTHERS THEN
                INSERT INTO gpuledger.lost_view AS lost (name, owner, definition, reason)
                VALUES (kept.name, kept.owner, kept.definition, SQLERRM)
                ON CONFLICT ON CONSTRAINT lost_view_pkey DO UPDATE
                SET owner = excluded.owner, definition = excluded.definition, reason = excluded.reason, lost_at = now();
        END;
    END LOOP;
END
$$;

DROP TABLE pg_temp.kept_view;
