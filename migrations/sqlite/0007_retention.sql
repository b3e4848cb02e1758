-- What is left of a closed execution whose history was removed; NULL while the history is there.
ALTER TABLE executions ADD COLUMN tombstone BLOB CHECK (tombstone IS NULL OR (tombstone <> x'' AND closed_at IS NOT NULL));

-- Retention walks over the ends of one shard; what it has dealt with leaves its index.
DROP INDEX executions_closed;
CREATE INDEX executions_closed ON executions (shard, closed_at) WHERE closed_at IS NOT NULL AND tombstone IS NULL;
CREATE INDEX executions_retired ON executions (shard, closed_at) WHERE tombstone IS NOT NULL;
