//! The three databases, as far as their SQL differs.

/// Whose SQL it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
    /// MariaDB too.
    MySql,
}

impl Dialect {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
            Self::MySql => "MySQL",
        }
    }

    /// How a transaction is begun that changes rows.
    pub(crate) fn begin(self) -> &'static str {
        match self {
            // A transaction that reads first and then writes would be refused at once when another one writes.
            Self::Sqlite => "BEGIN IMMEDIATE",
            // Whatever the database's default is: the look after the update must see what the update saw.
            Self::Postgres => "BEGIN ISOLATION LEVEL READ COMMITTED",
            Self::MySql => "START TRANSACTION",
        }
    }

    /// The type that everything is read as.
    pub(crate) fn text_type(self) -> &'static str {
        match self {
            Self::MySql => "CHAR",
            Self::Sqlite | Self::Postgres => "TEXT",
        }
    }

    /// A name, quoted.
    pub(crate) fn quote(self, name: &str) -> String {
        match self {
            Self::MySql => format!("`{}`", name.replace('`', "``")),
            Self::Sqlite | Self::Postgres => format!("\"{}\"", name.replace('"', "\"\"")),
        }
    }
}
