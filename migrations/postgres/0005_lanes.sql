-- What was fixed when the database was created, and the lowest program that may use it: the number of the last
-- migration that such a program must know. A later migration that older programs can live with leaves it as it is.
CREATE TABLE overdue.meta (
    one        integer  NOT NULL PRIMARY KEY CHECK (one = 1),
    shards     smallint NOT NULL CHECK (shards >= 1),
    compatible integer  NOT NULL DEFAULT 6
);

-- The last epoch that any lane got. A number that is taken and not used is no loss.
CREATE SEQUENCE overdue.epochs AS bigint;

-- The nodes and how long each is taken to be alive, by this server's clock.
CREATE TABLE overdue.nodes (
    node_id    text COLLATE "C" NOT NULL PRIMARY KEY CHECK (node_id <> ''),
    url        text,
    secret     text        NOT NULL,
    joined_at  timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (
    -- A few rows, each rewritten every second or so.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 200
);

-- The writers of the nodes. A commit locks its own row and no other; pid and backend_start name the session that writes,
-- so that a successor can end it.
CREATE TABLE overdue.lanes (
    epoch         bigint   NOT NULL UNIQUE CHECK (epoch >= 1),
    backend_start timestamptz,
    pid           integer,
    lane          smallint NOT NULL CHECK (lane >= 0),
    node_id       text COLLATE "C" NOT NULL CHECK (node_id <> ''),
    PRIMARY KEY (node_id, lane)
) WITH (
    -- A few rows, locked in every commit.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 200
);

-- Who advances the executions of each shard. One that nobody ever owned has been free since long.
CREATE TABLE overdue.shards (
    epoch    bigint      NOT NULL DEFAULT 0,
    freed_at timestamptz NOT NULL DEFAULT 'epoch',
    shard    smallint    NOT NULL PRIMARY KEY CHECK (shard >= 0),
    node_id  text COLLATE "C"
);

CREATE INDEX shards_of_node ON overdue.shards (node_id);

-- The first statement of every commit: locks the lane's row until the transaction ends, and fails when the lane has
-- another epoch, so that nothing after it can be written by a node that was succeeded. Returns the node's shards: they
-- change only in its own lane, or with its end, so that they are its own for as long as the lane is locked.
CREATE FUNCTION overdue.fence(of_node text, of_lane smallint, expected bigint) RETURNS smallint[]
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM overdue.lanes AS l
    WHERE l.node_id = of_node AND l.lane = of_lane AND l.epoch = expected
    FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the lane has another epoch than %', expected USING ERRCODE = 'OV001';
    END IF;
    RETURN ARRAY(SELECT s.shard FROM overdue.shards AS s WHERE s.node_id = of_node);
END
$$;
