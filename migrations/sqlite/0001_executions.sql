-- Workflow types by a small number: their names would otherwise fill a tenth of every sleeper.
CREATE TABLE types (
    code INTEGER PRIMARY KEY,
    name TEXT    NOT NULL UNIQUE CHECK (name <> '')
) STRICT;

-- One row per execution. `number` only gives the rows an order of creation, so that pages fill at the right edge.
CREATE TABLE executions (
    number          INTEGER PRIMARY KEY,
    type            INTEGER NOT NULL,
    id              TEXT    NOT NULL CHECK (id <> ''),
    shard           INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 65535),
    run_id          BLOB    NOT NULL CHECK (length(run_id) = 16),
    status          INTEGER NOT NULL CHECK (status BETWEEN 0 AND 5),
    wake_at         INTEGER,
    closed_at       INTEGER,
    rev             INTEGER NOT NULL CHECK (rev >= 0),
    request_hash    BLOB    NOT NULL CHECK (length(request_hash) = 16),
    needs_attention INTEGER NOT NULL CHECK (needs_attention IN (0, 1)),
    attempts        BLOB    CHECK (attempts <> x''),
    UNIQUE (type, id),
    CHECK ((status <= 1) = (closed_at IS NULL)),
    CHECK (closed_at IS NULL OR wake_at IS NULL)
) STRICT;

-- Only an open execution has a wake_at, so this holds open rows only.
CREATE INDEX executions_due ON executions (shard, wake_at) WHERE wake_at IS NOT NULL;

CREATE INDEX executions_closed ON executions (closed_at) WHERE closed_at IS NOT NULL;

-- What a person has to look at: empty on a good day, and nothing to a sleeper.
CREATE INDEX executions_attention ON executions (type, id) WHERE needs_attention = 1 OR status = 1;
