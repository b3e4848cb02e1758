-- Signals that are stored and not yet part of a history.
CREATE TABLE overdue.inbox (
    received_at bigint   NOT NULL,
    shard       smallint NOT NULL CHECK (shard >= 0),
    type        smallint NOT NULL,
    held        boolean  NOT NULL DEFAULT false,
    identity    uuid     NOT NULL,
    id          text COLLATE "C" NOT NULL CHECK (id <> ''),
    signal_id   text COLLATE "C" NOT NULL CHECK (signal_id <> ''),
    name        text COLLATE "C" NOT NULL CHECK (name <> ''),
    payload     text COLLATE "C" NOT NULL CHECK (payload <> ''),
    PRIMARY KEY (shard, type, id, signal_id)
) WITH (
    -- Rows come and go within moments: what counts is how many are dead, not which part of the few that live.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 5000
);

CREATE INDEX inbox_unread ON overdue.inbox (shard, type, id) WHERE NOT held;

CREATE INDEX inbox_age ON overdue.inbox (shard, received_at);
