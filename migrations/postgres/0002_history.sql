-- One row per transition. Run ids ascend with time, so that in each shard first rows are appended at the right edge.
CREATE TABLE overdue.history (
    first_event bigint   NOT NULL CHECK (first_event >= 1),
    shard       smallint NOT NULL CHECK (shard >= 0),
    run_id      uuid     NOT NULL,
    events      bytea    NOT NULL CHECK (events <> ''),
    PRIMARY KEY (shard, run_id, first_event)
) WITH (
    -- Nothing here is ever updated: vacuum comes by inserts alone, and freezes what it sees at once, so that the one that
    -- must come against the wraparound of transaction ids finds little to do.
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_freeze_min_age = 0,
    -- Retention removes rows; their room is for the next ones.
    autovacuum_vacuum_scale_factor = 0.05
);
