-- What was fixed when the store was created, and the last epoch that any lane got.
CREATE TABLE meta (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    shards INTEGER NOT NULL CHECK (shards BETWEEN 1 AND 65535),
    epoch  INTEGER NOT NULL DEFAULT 0 CHECK (epoch >= 0)
) STRICT;

CREATE TABLE lanes (
    node_id TEXT    NOT NULL CHECK (node_id <> ''),
    lane    INTEGER NOT NULL CHECK (lane >= 0),
    epoch   INTEGER NOT NULL UNIQUE CHECK (epoch >= 1),
    PRIMARY KEY (node_id, lane)
) STRICT, WITHOUT ROWID;
