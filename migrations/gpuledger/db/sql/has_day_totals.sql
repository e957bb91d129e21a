CREATE FUNCTION report.has_day_totals(of_projection text) RETURNS boolean
LANGUAGE sql STABLE
AS $$
SELECT coalesce(
    (
        SELECT projection.version >= CASE of_projection WHEN 'workloads' THEN 2 WHEN 'allocations' THEN 3 END
        FROM gpuledger.projection
        WHERE projection.name = of_projection AND projection.edition = 'live'
    ),
    true
)
$$;

COMMENT ON FUNCTION report.has_day_totals(text) IS
    'Whether the rows of a projection that serve have day totals; a build of before kept none.';
