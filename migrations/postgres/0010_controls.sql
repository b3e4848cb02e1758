-- What all nodes agree on about something outside, such as a circuit breaker: a small document, replaced as a whole.
CREATE TABLE overdue.controls (
    rev   bigint NOT NULL CHECK (rev > 0),
    name  text COLLATE "C" NOT NULL PRIMARY KEY CHECK (name <> ''),
    value bytea  NOT NULL
);

ALTER TABLE overdue.meta ALTER COLUMN compatible SET DEFAULT 10;
UPDATE overdue.meta SET compatible = 10;
