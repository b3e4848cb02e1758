CREATE TABLE tokens (
    name        TEXT    NOT NULL PRIMARY KEY CHECK (name <> ''),
    secret_hash BLOB    NOT NULL UNIQUE CHECK (length(secret_hash) = 32),
    scopes      TEXT    NOT NULL,
    types       TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    expires_at  INTEGER
) STRICT, WITHOUT ROWID;
