-- What an execution waits behind whose calls are held back by a breaker, so that those that wait are found when it lets go.
ALTER TABLE executions ADD COLUMN parked_by TEXT CHECK (parked_by <> '');
ALTER TABLE executions ADD COLUMN parked_since INTEGER CHECK ((parked_since IS NULL) = (parked_by IS NULL));

CREATE INDEX executions_parked ON executions (shard, parked_by, parked_since) WHERE parked_by IS NOT NULL;
