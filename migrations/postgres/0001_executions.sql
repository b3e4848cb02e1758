-- Workflow types by a small number: their names would otherwise fill a tenth of every sleeper.
CREATE TABLE overdue.types (
    code smallint NOT NULL PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE CHECK (name <> '')
);

-- One row per execution. Wide columns stand before narrow ones, so that no byte is lost between them; a uuid, a text and
-- a bytea need no alignment.
CREATE TABLE overdue.executions (
    wake_at         bigint,
    closed_at       bigint,
    rev             integer  NOT NULL CHECK (rev >= 0),
    shard           smallint NOT NULL CHECK (shard >= 0),
    type            smallint NOT NULL,
    status          smallint NOT NULL CHECK (status BETWEEN 0 AND 5),
    needs_attention boolean  NOT NULL,
    run_id          uuid     NOT NULL,
    request_hash    uuid     NOT NULL,
    id              text COLLATE "C" NOT NULL CHECK (id <> ''),
    attempts        bytea    CHECK (attempts <> ''),
    PRIMARY KEY (shard, type, id),
    CHECK ((status <= 1) = (closed_at IS NULL)),
    CHECK (closed_at IS NULL OR wake_at IS NULL)
) WITH (
    -- Notes on attempts change no index: with room left on its page such an update touches the row alone.
    fillfactor = 90,
    -- A row that moved its time leaves a dead entry at the front of executions_due, which every scan passes until it is
    -- vacuumed: not after a fifth of ten million sleepers, as the default has it.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.05
);

-- Only an open execution has a wake_at, so this holds open rows only.
CREATE INDEX executions_due ON overdue.executions (shard, wake_at) WHERE wake_at IS NOT NULL;

CREATE INDEX executions_closed ON overdue.executions (shard, closed_at) WHERE closed_at IS NOT NULL;

-- What a person has to look at: empty on a good day, and nothing to a sleeper.
CREATE INDEX executions_attention ON overdue.executions (shard, type, id) WHERE needs_attention OR status = 1;
