-- Which store this is, and whether it is the unfinished copy of another one or was moved into another one.
CREATE TABLE overdue.transfer (
    one             integer NOT NULL PRIMARY KEY CHECK (one = 1),
    store_id        uuid    NOT NULL,
    copying_from_id uuid,
    copying_from    text,
    moved_to_id     uuid,
    moved_to        text,
    CHECK ((copying_from_id IS NULL) = (copying_from IS NULL)),
    CHECK ((moved_to_id IS NULL) = (moved_to IS NULL))
);

INSERT INTO overdue.transfer (one, store_id) VALUES (1, gen_random_uuid());

-- Keeps the store from being moved until the caller's transaction ends, and fails when that is going on or was done.
--
-- Whoever moves a store has the lock of this number ("overdue" and a 1, in bytes) to himself, from before the first row is
-- read until the marks are set. A shared one costs no row and no wait. A transaction that sees the database as it was before
-- it came here does not see later marks; locking their row fails then.
CREATE FUNCTION overdue.stay() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, overdue, pg_temp AS $$
DECLARE
    marks transfer;
BEGIN
    IF NOT pg_try_advisory_xact_lock_shared(8031718527447950593) THEN
        RAISE EXCEPTION 'this store is being copied into another one' USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'try again when `overdue copy` has ended; it says which store is used from then on';
    END IF;
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        PERFORM FROM transfer AS t WHERE t.one = 1 FOR SHARE;
    END IF;
    SELECT t.* INTO marks FROM transfer AS t WHERE t.one = 1;
    IF marks.moved_to IS NOT NULL THEN
        RAISE EXCEPTION 'this store was moved to %', marks.moved_to USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'start workflows and send signals there';
    ELSIF marks.copying_from IS NOT NULL THEN
        RAISE EXCEPTION 'this store is the unfinished copy of %', marks.copying_from
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'run `overdue copy` again, it goes on where it was interrupted';
    END IF;
END
$$;

-- No role that may use the schema is to call what it was not allowed to.
REVOKE ALL ON FUNCTION overdue.stay(), overdue.fence(text, smallint, bigint) FROM PUBLIC;

-- A program that does not know of the marks would serve a store that was moved away.
ALTER TABLE overdue.meta ALTER COLUMN compatible SET DEFAULT 8;
UPDATE overdue.meta SET compatible = 8;
