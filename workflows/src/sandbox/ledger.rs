//! An append-only file of JSON lines, durable before anybody is told.
//!
//! One thread owns the file. While it waits for the disk the next lines gather, so one flush serves many requests; a
//! line alone is flushed at once. Lines are queued under the service's lock, hence the file's order is the order of
//! the decisions, and nobody is answered before everything that the answer rests on is on disk.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::{Error, Record};

/// Bytes after which a gathering batch is written without waiting for more, so that memory stays bounded.
const BATCH_BYTES_MAX: usize = 4 << 20;

struct Append {
    records: Vec<Record>,
    durable: oneshot::Sender<Result<(), Error>>,
}

/// The writing end of one ledger.
pub(super) enum Ledger {
    /// A file.
    Durable(Writing),
    /// Memory only: what is written lasts as long as the shop.
    Memory(Mutex<Vec<Record>>),
}

/// The thread that writes a file.
pub(super) struct Writing {
    // Unbounded, but each waiting append belongs to a caller who waits for it.
    queue: Option<mpsc::Sender<Append>>,
    writer: Option<JoinHandle<()>>,
}

/// Resolves when the records are on disk.
pub(super) struct Receipt(oneshot::Receiver<Result<(), Error>>);

impl Receipt {
    pub(super) async fn durable(self) -> Result<(), Error> {
        self.0.await.unwrap_or(Err(Error::LedgerClosed))
    }
}

impl Ledger {
    /// Opens or creates the ledger and returns what it holds; a torn last line was never acknowledged and is cut off.
    pub(super) fn open(path: &Path) -> Result<(Ledger, Vec<Record>), Error> {
        let failed = |source| Error::Ledger { path: path.to_owned(), source };
        let mut file = OpenOptions::new().create(true).read(true).write(true).truncate(false).open(path).map_err(failed)?;
        let (records, whole_bytes) = read_whole_lines(path)?;
        file.set_len(whole_bytes).map_err(failed)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        sync_folder_of(path).map_err(failed)?;

        let (queue, appends) = mpsc::channel();
        let path = path.to_owned();
        let writer = std::thread::spawn(move || write_batches(file, &path, &appends));
        Ok((Ledger::Durable(Writing { queue: Some(queue), writer: Some(writer) }), records))
    }

    /// What an in-memory ledger holds so far; none of a durable one, whose file tells.
    pub(super) fn in_memory(&self) -> Option<Vec<Record>> {
        match self {
            Ledger::Memory(records) => Some(records.lock().unwrap_or_else(PoisonError::into_inner).clone()),
            Ledger::Durable(_) => None,
        }
    }

    /// Queues the records as neighbours, behind everything queued before.
    pub(super) fn append(&self, records: Vec<Record>) -> Receipt {
        let (durable, receipt) = oneshot::channel();
        match self {
            Ledger::Durable(writing) => {
                if let Some(queue) = &writing.queue {
                    // A failed send drops the sender, which the receipt reports as a closed ledger.
                    let _ = queue.send(Append { records, durable });
                }
            }
            Ledger::Memory(kept) => {
                kept.lock().unwrap_or_else(PoisonError::into_inner).extend(records);
                let _ = durable.send(Ok(()));
            }
        }
        Receipt(receipt)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// Reads every whole line of a ledger, in order.
///
/// # Errors
/// When the file cannot be read, or a whole line is not a record.
pub fn read(path: &Path) -> Result<Vec<Record>, Error> {
    Ok(read_whole_lines(path)?.0)
}

fn read_whole_lines(path: &Path) -> Result<(Vec<Record>, u64), Error> {
    let text = std::fs::read(path).map_err(|source| Error::Ledger { path: path.to_owned(), source })?;
    let whole_bytes = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let records = text[..whole_bytes]
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .enumerate()
        .map(|(index, line)| {
            serde_json::from_slice(line).map_err(|source| Error::LedgerLine { path: path.to_owned(), line: index + 1, source })
        })
        .collect::<Result<_, _>>()?;
    Ok((records, whole_bytes as u64))
}

/// A new file is durable only with its folder.
fn sync_folder_of(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

fn write_batches(mut file: File, path: &Path, appends: &mpsc::Receiver<Append>) {
    let mut broken = false;
    while let Ok(first) = appends.recv() {
        let mut text = Vec::new();
        let mut waiting = Vec::new();
        let mut next = Some(first);
        while let Some(append) = next {
            for record in &append.records {
                serde_json::to_writer(&mut text, record).expect("a record has only string keys");
                text.push(b'\n');
            }
            waiting.push(append.durable);
            next = if text.len() < BATCH_BYTES_MAX { appends.try_recv().ok() } else { None };
        }
        // After a failed write the file no longer holds what the service's memory holds: nothing may follow.
        let written = if broken { Err(None) } else { write_durably(&mut file, &text).map_err(Some) };
        broken |= written.is_err();
        let kind = written.err().map(|error| error.map_or(std::io::ErrorKind::BrokenPipe, |error| error.kind()));
        for durable in waiting {
            let answer = match kind {
                None => Ok(()),
                Some(kind) => Err(Error::Ledger { path: path.to_owned(), source: kind.into() }),
            };
            let _ = durable.send(answer);
        }
    }
}

fn write_durably(file: &mut File, text: &[u8]) -> std::io::Result<()> {
    file.write_all(text)?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::{Effect, EffectRecord, Service};

    fn sold(n: u64) -> Record {
        Record::Effect(EffectRecord {
            n,
            service: Service::Stock,
            subject: format!("r-{n}"),
            key: None,
            at: jiff::Timestamp::UNIX_EPOCH,
            effect: Effect::StockSold,
        })
    }

    #[tokio::test]
    async fn what_was_acknowledged_is_read_back_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stock.ndjson");
        let (ledger, found) = Ledger::open(&path).unwrap();
        assert!(found.is_empty());

        let receipts: Vec<_> = (1..=500).map(|n| ledger.append(vec![sold(n)])).collect();
        for receipt in receipts {
            receipt.durable().await.unwrap();
        }

        let expected: Vec<_> = (1..=500).map(sold).collect();
        assert_eq!(read(&path).unwrap(), expected);
    }

    #[tokio::test]
    async fn a_torn_last_line_is_cut_off_and_writing_goes_on_behind_the_whole_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stock.ndjson");
        let (ledger, _) = Ledger::open(&path).unwrap();
        ledger.append(vec![sold(1)]).durable().await.unwrap();
        drop(ledger);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(br#"{"record":"eff"#).unwrap();

        let (ledger, found) = Ledger::open(&path).unwrap();
        ledger.append(vec![sold(2)]).durable().await.unwrap();

        assert_eq!(found, vec![sold(1)]);
        assert_eq!(read(&path).unwrap(), vec![sold(1), sold(2)]);
    }

    #[test]
    fn a_whole_line_that_is_no_record_is_reported_with_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stock.ndjson");
        std::fs::write(&path, "{\"record\":\"nonsense\"}\n").unwrap();

        let error = read(&path).unwrap_err();

        assert!(matches!(error, Error::LedgerLine { line: 1, .. }), "{error}");
    }
}
