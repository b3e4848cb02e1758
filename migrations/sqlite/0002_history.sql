-- One row per transition. Run ids ascend with time, so that first rows are appended at the right edge.
CREATE TABLE history (
    run_id      BLOB    NOT NULL CHECK (length(run_id) = 16),
    first_event INTEGER NOT NULL CHECK (first_event >= 1),
    events      BLOB    NOT NULL CHECK (events <> x''),
    PRIMARY KEY (run_id, first_event)
) STRICT, WITHOUT ROWID;
