CREATE TABLE attributes (
    type  INTEGER NOT NULL,
    id    TEXT    NOT NULL,
    name  TEXT    NOT NULL CHECK (name <> ''),
    value TEXT    NOT NULL CHECK (value <> ''),
    PRIMARY KEY (type, id, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX attributes_search ON attributes (name, value, type, id);
