CREATE FUNCTION report.has_versions() RETURNS boolean
LANGUAGE sql STABLE
AS $$
SELECT coalesce(
    (SELECT projection.version >= 4 FROM gpuledger.projection WHERE projection.name = 'devices' AND projection.edition = 'live'),
    true
)
$$;

COMMENT ON FUNCTION report.has_versions() IS
    'Whether the rows that serve have the versions of devices and slots; a build of before kept none.';
