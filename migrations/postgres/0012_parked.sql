-- What an execution waits behind whose calls are held back by a breaker, so that those that wait are found when it lets go.
ALTER TABLE overdue.executions
    ADD COLUMN parked_since bigint,
    ADD COLUMN parked_by text COLLATE "C" CHECK (parked_by <> ''),
    ADD CONSTRAINT executions_parked_whole CHECK ((parked_since IS NULL) = (parked_by IS NULL));

CREATE INDEX executions_parked ON overdue.executions (shard, parked_by, parked_since) WHERE parked_by IS NOT NULL;

-- A program that does not know of it would leave those parked where they are until their latest time.
ALTER TABLE overdue.meta ALTER COLUMN compatible SET DEFAULT 12;
UPDATE overdue.meta SET compatible = 12;
