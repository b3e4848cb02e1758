//! How many values travel to SQLite and back: multi-row statements in a few fixed sizes.
//!
//! SQLite prepares a statement for a fixed number of rows; four sizes keep the number of prepared statements small
//! and the number of calls low.

/// The rows that one statement takes, largest first.
pub(super) const SIZES: [usize; 4] = [64, 16, 4, 1];

/// A statement with a `VALUES` list, once for each of [`SIZES`].
pub(super) struct Sized(pub(super) [&'static str; 4]);

impl Sized {
    /// Cuts `items` into as few pieces as the sizes allow, each with the statement that takes it.
    pub(super) fn pieces<'a, T>(&self, mut items: &'a [T]) -> impl Iterator<Item = (&'static str, &'a [T])> {
        let statements = self.0;
        std::iter::from_fn(move || {
            let size = SIZES.iter().position(|size| *size <= items.len())?;
            let (piece, rest) = items.split_at(SIZES[size]);
            items = rest;
            Some((statements[size], piece))
        })
    }
}

/// A place in a list, as it comes back from a statement that it was given to.
pub(super) fn place(place: i64) -> usize {
    usize::try_from(place).expect("what comes back was a place")
}

/// A limit as a statement takes it.
pub(super) fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

macro_rules! four {
    ($row:literal) => {
        concat!($row, ", ", $row, ", ", $row, ", ", $row)
    };
}

macro_rules! sixteen {
    ($row:literal) => {
        concat!(four!($row), ", ", four!($row), ", ", four!($row), ", ", four!($row))
    };
}

macro_rules! sixty_four {
    ($row:literal) => {
        concat!(sixteen!($row), ", ", sixteen!($row), ", ", sixteen!($row), ", ", sixteen!($row))
    };
}

/// `sized!(head, row, tail)`: the statement `head row, row, … tail` in every size.
macro_rules! sized {
    ($head:literal, $row:literal, $tail:literal) => {
        $crate::store::sqlite::values::Sized([
            concat!($head, sixty_four!($row), $tail),
            concat!($head, sixteen!($row), $tail),
            concat!($head, four!($row), $tail),
            concat!($head, $row, $tail),
        ])
    };
}

pub(super) use {four, sixteen, sixty_four, sized};

#[cfg(test)]
mod tests {
    #[test]
    fn a_list_is_cut_into_pieces_whose_statements_have_as_many_rows() {
        let statement = sized!("VALUES ", "(?)", "");
        for count in [0, 1, 3, 4, 63, 64, 65, 200] {
            let items: Vec<usize> = (0..count).collect();
            let mut seen = Vec::new();
            for (sql, piece) in statement.pieces(&items) {
                assert_eq!(sql.matches("(?)").count(), piece.len());
                seen.extend_from_slice(piece);
            }
            assert_eq!(seen, items);
        }
    }
}
