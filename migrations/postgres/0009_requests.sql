-- Starts and signals inside a caller's own transaction.

-- What may be sent to a type, as the programs that run it say.
ALTER TABLE overdue.types ADD COLUMN signals text[] NOT NULL DEFAULT '{}';

-- A signal that no program has checked yet has no identity of its own.
ALTER TABLE overdue.inbox ALTER COLUMN identity SET DEFAULT '00000000-0000-0000-0000-000000000000';

-- Starts that were asked for and not made yet, and those that could not be made, with the reason.
CREATE TABLE overdue.starts (
    requested_at bigint   NOT NULL,
    start_at     bigint,
    shard        smallint NOT NULL CHECK (shard >= 0),
    type         smallint NOT NULL,
    id           text COLLATE "C" NOT NULL CHECK (id <> ''),
    input        text COLLATE "C" NOT NULL CHECK (input <> ''),
    attributes   text COLLATE "C" CHECK (attributes <> ''),
    refused      text CHECK (refused <> ''),
    PRIMARY KEY (shard, type, id)
) WITH (
    -- Rows come and go within moments, like those of the inbox.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 5000
);

CREATE INDEX starts_requested ON overdue.starts (shard, requested_at) WHERE refused IS NULL;

-- The shard of an id: as every node computes it.
CREATE FUNCTION overdue.shard_of(id text) RETURNS smallint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, overdue, pg_temp AS $$
    SELECT ((get_byte(h.digest, 0) * 256 + get_byte(h.digest, 1)) % m.shards)::smallint
    FROM meta AS m, (SELECT sha256(convert_to(split_part(shard_of.id, '~', 1), 'UTF8')) AS digest) AS h
    WHERE m.one = 1
$$;

-- Fails unless a text can be an id; `what` is its name in the message. White space is spelled out: which of it a locale
-- knows differs.
CREATE FUNCTION overdue.check_id(id text, what text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    white CONSTANT text := U&'\0009-\000d\0020\0085\00a0\1680\2000-\200a\2028\2029\202f\205f\3000';
BEGIN
    IF id IS NULL OR octet_length(id) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION '%: an id has 1 to 200 bytes of UTF-8', what
            USING ERRCODE = 'invalid_parameter_value', COLUMN = what;
    ELSIF id IN ('.', '..') THEN
        RAISE EXCEPTION '%: an id must not be ''.'' or ''..''', what
            USING ERRCODE = 'invalid_parameter_value', COLUMN = what;
    ELSIF id ~ U&'[/~\0001-\001f\007f-\009f\00ad\061c\180e\200b-\200f\2028-\202e\2060-\206f\e000-\f8ff\feff\fff0-\fffb\fffd]'
        OR id ~ U&'[\+0e0000-\+0e007f]' THEN
        RAISE EXCEPTION '%: an id is printable text without ''/'', ''~'' and control characters', what
            USING ERRCODE = 'invalid_parameter_value', COLUMN = what;
    ELSIF id ~ ('^[' || white || ']|[' || white || ']$') THEN
        RAISE EXCEPTION '%: an id must not begin or end with white space', what
            USING ERRCODE = 'invalid_parameter_value', COLUMN = what;
    ELSIF id IS NOT NFC NORMALIZED THEN
        RAISE EXCEPTION '%: an id must be in Unicode normalization form C (NFC)', what
            USING ERRCODE = 'invalid_parameter_value', COLUMN = what;
    END IF;
END
$$;

-- How deep arrays and objects stand in each other. Strings are taken out first: a bracket in them opens nothing.
CREATE FUNCTION overdue.json_depth(json text) RETURNS bigint
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(max(depth), 0)
    FROM (
        SELECT sum(CASE WHEN b.bracket[1] IN ('[', '{') THEN 1 ELSE -1 END) OVER (ORDER BY b.place) AS depth
        FROM regexp_matches(regexp_replace(json, '"([^"\\]|\\.)*"', '', 'g'), '[][{}]', 'g')
             WITH ORDINALITY AS b (bracket, place)
    ) AS depths
$$;

-- Fails unless a JSON text is one that every program can take.
CREATE FUNCTION overdue.check_json(json text, what text, bytes_max integer) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, overdue, pg_temp AS $$
BEGIN
    IF json IS NULL THEN
        RAISE EXCEPTION '%: missing', what USING ERRCODE = 'null_value_not_allowed', COLUMN = what;
    ELSIF octet_length(json) > bytes_max THEN
        RAISE EXCEPTION '% has % bytes, the limit is %', what, octet_length(json), bytes_max
            USING ERRCODE = 'invalid_parameter_value', COLUMN = what;
    ELSIF json ~ '(^|[^\\])(\\\\)*\\u0000' THEN
        RAISE EXCEPTION '% contains the character U+0000', what USING ERRCODE = 'invalid_parameter_value', COLUMN = what;
    -- So many brackets open in all are too few to be too deep.
    ELSIF octet_length(json) - octet_length(translate(json, '[{', '')) > 128 AND json_depth(json) > 128 THEN
        RAISE EXCEPTION '% is nested deeper than 128', what USING ERRCODE = 'invalid_parameter_value', COLUMN = what;
    END IF;
END
$$;

-- The number of a type that some program runs.
CREATE FUNCTION overdue.type_of(name text) RETURNS overdue.types
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, overdue, pg_temp AS $$
DECLARE
    found types;
    known text;
BEGIN
    SELECT t.* INTO found FROM types AS t WHERE t.name = type_of.name;
    IF found IS NULL THEN
        SELECT string_agg(t.name, ', ' ORDER BY t.name) INTO known FROM types AS t;
        RAISE EXCEPTION 'there is no workflow type %', quote_nullable(type_of.name)
            USING ERRCODE = 'undefined_object', COLUMN = 'type', DETAIL = coalesce(known, 'none'),
                  HINT = coalesce('known are ' || known, 'no node has run on this database yet');
    END IF;
    RETURN found;
END
$$;

-- This instant in microseconds since 1970.
CREATE FUNCTION overdue.micros(instant timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT (extract(epoch FROM instant) * 1000000)::bigint
$$;

-- Has a workflow started once the caller's transaction is committed. The same request again changes nothing; one that was
-- refused is replaced.
CREATE FUNCTION overdue.start_workflow(
    type text, id text, input json, attributes json DEFAULT NULL, start_at timestamptz DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, overdue, pg_temp AS $$
#variable_conflict use_column
DECLARE
    code smallint := (type_of(start_workflow.type)).code;
    of_shard smallint := shard_of(start_workflow.id);
    known starts;
BEGIN
    PERFORM stay();
    PERFORM check_id(start_workflow.id, 'id');
    PERFORM check_json(start_workflow.input::text, 'input', 1048576);
    IF start_workflow.attributes IS NOT NULL THEN
        PERFORM check_json(start_workflow.attributes::text, 'attributes', 65536);
        IF json_typeof(start_workflow.attributes) <> 'object' THEN
            RAISE EXCEPTION 'attributes: an object of names and values'
                USING ERRCODE = 'invalid_parameter_value', COLUMN = 'attributes';
        END IF;
    END IF;
    -- Selected rather than given as values: where the tables are distributed, that commits in two phases, so that the
    -- request is there exactly when the caller's own rows are.
    INSERT INTO starts AS s (requested_at, start_at, shard, type, id, input, attributes)
    SELECT micros(clock_timestamp()), micros(start_workflow.start_at), of_shard, code,
           start_workflow.id, start_workflow.input::text, start_workflow.attributes::text
    ON CONFLICT (shard, type, id) DO UPDATE
    SET requested_at = excluded.requested_at, start_at = excluded.start_at, input = excluded.input,
        attributes = excluded.attributes, refused = NULL
    WHERE s.refused IS NOT NULL;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT s.* INTO known FROM starts AS s
    WHERE s.shard = of_shard AND s.type = code AND s.id = start_workflow.id;
    IF FOUND AND (known.input::jsonb, known.attributes::jsonb, known.start_at) IS DISTINCT FROM
        (start_workflow.input::jsonb, start_workflow.attributes::jsonb, micros(start_workflow.start_at)) THEN
        RAISE EXCEPTION '% % was asked for by another request before; ids are used once', start_workflow.type, start_workflow.id
            USING ERRCODE = 'unique_violation';
    END IF;
END
$$;

-- Sends a signal once the caller's transaction is committed, to a workflow that is started or not. The same signal id
-- again changes nothing.
CREATE FUNCTION overdue.signal_workflow(type text, id text, name text, payload json, signal_id text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, overdue, pg_temp AS $$
#variable_conflict use_column
DECLARE
    known_type types := type_of(signal_workflow.type);
    of_shard smallint := shard_of(signal_workflow.id);
    delivery text := coalesce(signal_workflow.signal_id, 'sql-' || gen_random_uuid());
    known inbox;
BEGIN
    PERFORM stay();
    PERFORM check_id(signal_workflow.id, 'id');
    PERFORM check_json(signal_workflow.payload::text, 'payload', 65536);
    IF octet_length(delivery) NOT BETWEEN 1 AND 200 OR delivery ~ U&'[\0001-\001f\007f-\009f]' THEN
        RAISE EXCEPTION 'signal_id: 1 to 200 bytes without control characters'
            USING ERRCODE = 'invalid_parameter_value', COLUMN = 'signal_id';
    ELSIF signal_workflow.name IS NULL OR signal_workflow.name <> ALL (known_type.signals) THEN
        RAISE EXCEPTION '% takes no signal %', signal_workflow.type, quote_nullable(signal_workflow.name)
            USING ERRCODE = 'undefined_object', COLUMN = 'name', HINT = 'it takes ' || array_to_string(known_type.signals, ', ');
    ELSIF EXISTS (SELECT 1 FROM inbox AS x WHERE x.shard = of_shard AND x.type = known_type.code AND x.id = signal_workflow.id OFFSET 999)
        OR (SELECT count(*) FROM inbox) > 99999 THEN
        RAISE EXCEPTION 'too many signals wait for % %', signal_workflow.type, signal_workflow.id
            USING ERRCODE = 'program_limit_exceeded', HINT = 'try again when they have been taken up';
    END IF;
    INSERT INTO inbox (received_at, shard, type, id, signal_id, name, payload)
    SELECT micros(clock_timestamp()), of_shard, known_type.code, signal_workflow.id, delivery, signal_workflow.name,
           signal_workflow.payload::text
    ON CONFLICT (shard, type, id, signal_id) DO NOTHING;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT x.* INTO known FROM inbox AS x
    WHERE x.shard = of_shard AND x.type = known_type.code AND x.id = signal_workflow.id AND x.signal_id = delivery;
    IF FOUND AND (known.name, known.payload::jsonb) IS DISTINCT FROM (signal_workflow.name, signal_workflow.payload::jsonb) THEN
        RAISE EXCEPTION '% % was sent signal % before, saying something else', signal_workflow.type, signal_workflow.id, delivery
            USING ERRCODE = 'unique_violation';
    END IF;
END
$$;

-- Nobody may call them who was not allowed to: see `overdue migrate --allow ROLE`.
REVOKE ALL ON FUNCTION
    overdue.shard_of(text), overdue.check_id(text, text), overdue.json_depth(text), overdue.check_json(text, text, integer),
    overdue.type_of(text), overdue.micros(timestamptz),
    overdue.start_workflow(text, text, json, json, timestamptz),
    overdue.signal_workflow(text, text, text, json, text)
FROM PUBLIC;

-- A program that does not know of unchecked signals would take one for checked.
ALTER TABLE overdue.meta ALTER COLUMN compatible SET DEFAULT 9;
UPDATE overdue.meta SET compatible = 9;
