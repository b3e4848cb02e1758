-- What all nodes agree on about something outside, such as a circuit breaker: a small document, replaced as a whole.
CREATE TABLE controls (
    name  TEXT    NOT NULL PRIMARY KEY CHECK (name <> ''),
    rev   INTEGER NOT NULL CHECK (rev > 0),
    value BLOB    NOT NULL
) STRICT, WITHOUT ROWID;
