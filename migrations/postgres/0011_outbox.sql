-- Events on their way to those outside: a row for each event and each sink that takes it, until the sink has it.
CREATE TABLE overdue.outbox (
    event         bigint   NOT NULL CHECK (event >= 1),
    emitted_at    bigint   NOT NULL,
    -- NULL while it waits for one before it, or for a person.
    next_at       bigint,
    failing_since bigint,
    run_id        uuid     NOT NULL,
    attempts      integer  NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    shard         smallint NOT NULL CHECK (shard >= 0),
    parked        boolean  NOT NULL DEFAULT false,
    sink          text COLLATE "C" NOT NULL CHECK (sink <> ''),
    type          text COLLATE "C" NOT NULL CHECK (type <> ''),
    id            text COLLATE "C" NOT NULL CHECK (id <> ''),
    name          text COLLATE "C" NOT NULL CHECK (name <> ''),
    data          text COLLATE "C" NOT NULL CHECK (data <> ''),
    failure       text COLLATE "C",
    PRIMARY KEY (shard, sink, run_id, event),
    CHECK (NOT parked OR next_at IS NULL)
) WITH (
    -- Rows come and go within moments, like those of the inbox.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 5000
);

CREATE INDEX outbox_due ON overdue.outbox (shard, sink, next_at, run_id, event) WHERE next_at IS NOT NULL;

-- What people look for, however much else waits.
CREATE INDEX outbox_tried ON overdue.outbox (shard, sink, run_id, event) WHERE attempts > 0;

-- A program that does not know of events would block every execution that emitted one.
ALTER TABLE overdue.meta ALTER COLUMN compatible SET DEFAULT 11;
UPDATE overdue.meta SET compatible = 11;
