-- Signals that are stored and not yet part of a history.
CREATE TABLE inbox (
    type        INTEGER NOT NULL,
    id          TEXT    NOT NULL CHECK (id <> ''),
    signal_id   TEXT    NOT NULL CHECK (signal_id <> ''),
    shard       INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 65535),
    name        TEXT    NOT NULL CHECK (name <> ''),
    payload     TEXT    NOT NULL CHECK (payload <> ''),
    identity    BLOB    NOT NULL CHECK (length(identity) = 16),
    received_at INTEGER NOT NULL,
    held        INTEGER NOT NULL DEFAULT 0 CHECK (held IN (0, 1)),
    PRIMARY KEY (type, id, signal_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX inbox_unread ON inbox (shard, type, id) WHERE held = 0;

CREATE INDEX inbox_age ON inbox (received_at);
