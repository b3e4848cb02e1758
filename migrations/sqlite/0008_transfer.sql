-- Which store this is, and whether it is the unfinished copy of another one or was moved into another one.
CREATE TABLE transfer (
    one             INTEGER PRIMARY KEY CHECK (one = 1),
    store_id        BLOB    NOT NULL CHECK (length(store_id) = 16),
    copying_from_id BLOB    CHECK (length(copying_from_id) = 16),
    copying_from    TEXT,
    moved_to_id     BLOB    CHECK (length(moved_to_id) = 16),
    moved_to        TEXT,
    CHECK ((copying_from_id IS NULL) = (copying_from IS NULL)),
    CHECK ((moved_to_id IS NULL) = (moved_to IS NULL))
) STRICT;

INSERT INTO transfer (one, store_id) VALUES (1, randomblob(16));
