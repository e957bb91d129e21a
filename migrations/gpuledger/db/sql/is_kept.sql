CREATE FUNCTION report.is_kept(history text, at timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    since timestamptz := (
        SELECT to_timestamp(max(enforced_rule.version))
        FROM gpuledger.enforced_rule
        WHERE enforced_rule.rule = 'history/' || history AND enforced_rule.edition = 'live'
    );
BEGIN
    IF at < since THEN
        RAISE EXCEPTION '% is kept since %, because an operator has shortened it', history, since
            USING HINT = 'Ask the log itself, with gpuledger sql --at.';
    END IF;
    RETURN true;
END
$$;

COMMENT ON FUNCTION report.is_kept(text, timestamptz) IS
    'Raises an error where an operator has shortened a history to what ended after this time.';
