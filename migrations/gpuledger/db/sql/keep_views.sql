-- Notes the views that people made on ours and on the projections' tables, before these are replaced.
CREATE TEMPORARY TABLE IF NOT EXISTS kept_view (
    schema_name name NOT NULL,
    view_name name NOT NULL,
    depth bigint NOT NULL,
    kind "char" NOT NULL,
    owner name NOT NULL,
    definition text NOT NULL,
    options text[],
    comment text,
    column_comments text[] NOT NULL,
    grants text[] NOT NULL,
    indexes text[] NOT NULL,
    PRIMARY KEY (schema_name, view_name)
) ON COMMIT DROP;

DO $$
DECLARE
    search_path_before text := current_setting('search_path');
BEGIN
    -- With an empty path a definition names the schema of everything in it.
    PERFORM set_config('search_path', '', true);
    WITH RECURSIVE ours AS (
        SELECT 'pg_class'::regclass AS catalog, pg_class.oid AS object
        FROM pg_class
        JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE nspname IN ('gpuledger', 'gpuledger_live', 'report')
        UNION ALL
        SELECT 'pg_proc'::regclass, pg_proc.oid
        FROM pg_proc
        JOIN pg_namespace ON pg_namespace.oid = pronamespace
        WHERE nspname = 'report'
    ),
    built (view, depth) AS (
        SELECT ev_class, 1
        FROM ours
        JOIN pg_depend ON refclassid = catalog AND refobjid = object AND classid = 'pg_rewrite'::regclass
        JOIN pg_rewrite ON pg_rewrite.oid = objid
        WHERE NOT (catalog = 'pg_class'::regclass AND ev_class = object)
        UNION
        SELECT ev_class, depth + 1
        FROM built
        JOIN pg_depend ON refclassid = 'pg_class'::regclass AND refobjid = view AND classid = 'pg_rewrite'::regclass
        JOIN pg_rewrite ON pg_rewrite.oid = objid
        WHERE ev_class <> view
    )
    INSERT INTO pg_temp.kept_view
    SELECT
        nspname,
        relname,
        max(built.depth),
        relkind,
        pg_get_userbyid(relowner),
        pg_get_viewdef(pg_class.oid),
        reloptions,
        obj_description(pg_class.oid, 'pg_class'),
        ARRAY(
            SELECT format('COMMENT ON COLUMN %I.%I.%I IS %L', nspname, relname, attname, description)
            FROM pg_description
            JOIN pg_attribute ON attrelid = objoid AND attnum = objsubid
            WHERE objoid = pg_class.oid AND classoid = 'pg_class'::regclass AND objsubid > 0
        ),
        ARRAY(
            SELECT format(
                'GRANT %s ON %I.%I TO %s',
                privilege_type, nspname, relname,
                CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END
            )
            FROM aclexplode(relacl)
        ),
        ARRAY(SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = pg_class.oid ORDER BY indexrelid)
    FROM built
    JOIN pg_class ON pg_class.oid = built.view
    JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE relkind IN ('v', 'm') AND NOT (nspname = 'report' AND relname = ANY('{%(ours)s}'))
    GROUP BY pg_class.oid, nspname, relname, relkind, relowner, reloptions, relacl
    ON CONFLICT DO NOTHING;
    PERFORM set_config('search_path', search_path_before, true);
END
$$;
