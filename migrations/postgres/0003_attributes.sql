CREATE TABLE overdue.attributes (
    shard smallint NOT NULL CHECK (shard >= 0),
    type  smallint NOT NULL,
    id    text COLLATE "C" NOT NULL,
    name  text COLLATE "C" NOT NULL CHECK (name <> ''),
    value text COLLATE "C" NOT NULL CHECK (value <> ''),
    PRIMARY KEY (shard, type, id, name)
) WITH (
    -- Written once, with the start.
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_freeze_min_age = 0
);

CREATE INDEX attributes_search ON overdue.attributes (shard, name, value, type, id);
