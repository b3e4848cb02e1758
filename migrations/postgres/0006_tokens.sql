CREATE TABLE overdue.tokens (
    created_at  bigint NOT NULL,
    expires_at  bigint,
    name        text COLLATE "C" NOT NULL PRIMARY KEY CHECK (name <> ''),
    secret_hash bytea  NOT NULL UNIQUE CHECK (length(secret_hash) = 32),
    scopes      text   NOT NULL,
    types       text   NOT NULL
);
