-- Compare-and-set over many rows: a statement that finds fewer of them as they were read writes nothing at all.

CREATE FUNCTION unless_overtaken(what text, expected bigint, actual bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF actual <> expected THEN
        RAISE EXCEPTION 'someone else changed % of % %', expected - actual, expected, what
              USING ERRCODE = 'serialization_failure';
    END IF;
END
$$;
