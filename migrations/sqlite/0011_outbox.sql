-- Events on their way to those outside: a row for each event and each sink that takes it, until the sink has it.
CREATE TABLE outbox (
    number        INTEGER PRIMARY KEY,
    shard         INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 65535),
    sink          TEXT    NOT NULL CHECK (sink <> ''),
    run_id        BLOB    NOT NULL CHECK (length(run_id) = 16),
    event         INTEGER NOT NULL CHECK (event >= 1),
    type          TEXT    NOT NULL CHECK (type <> ''),
    id            TEXT    NOT NULL CHECK (id <> ''),
    name          TEXT    NOT NULL CHECK (name <> ''),
    data          TEXT    NOT NULL CHECK (data <> ''),
    emitted_at    INTEGER NOT NULL,
    -- NULL while it waits for one before it, or for a person.
    next_at       INTEGER,
    attempts      INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    failing_since INTEGER,
    parked        INTEGER NOT NULL DEFAULT 0 CHECK (parked IN (0, 1)),
    failure       TEXT,
    UNIQUE (shard, sink, run_id, event),
    CHECK (parked = 0 OR next_at IS NULL)
) STRICT;

CREATE INDEX outbox_due ON outbox (shard, sink, next_at, run_id, event) WHERE next_at IS NOT NULL;

-- What people look for, however much else waits.
CREATE INDEX outbox_tried ON outbox (shard, sink, run_id, event) WHERE attempts > 0;
