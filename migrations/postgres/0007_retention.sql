-- What is left of a closed execution whose history was removed; NULL while the history is there.
ALTER TABLE overdue.executions
    ADD COLUMN tombstone bytea CHECK (tombstone IS NULL OR (tombstone <> '' AND closed_at IS NOT NULL));

-- Retention walks over the ends of one shard; what it has dealt with leaves its index.
DROP INDEX overdue.executions_closed;
CREATE INDEX executions_closed ON overdue.executions (shard, closed_at) WHERE closed_at IS NOT NULL AND tombstone IS NULL;
CREATE INDEX executions_retired ON overdue.executions (shard, closed_at) WHERE tombstone IS NOT NULL;

-- A program that does not know of tombstones would take one for an execution.
ALTER TABLE overdue.meta ALTER COLUMN compatible SET DEFAULT 7;
UPDATE overdue.meta SET compatible = 7;
