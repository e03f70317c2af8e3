//! Long arrays in chunks that are compressed by gzip. Threads unpack the next chunks ahead of the reader: the HDF5 library, which
//! says where a chunk is, would unpack one after the other, under its lock.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Error as IoError, ErrorKind, Result as IoResult};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use flate2::{Decompress, FlushDecompress, Status};
use hdf5::Dataset;
use hdf5::filters::Filter;

use crate::formats::hdf5::reader::number_in_place;
use crate::formats::raw::NumberType;

/// Maximum number of threads that unpack the chunks of a matrix.
const THREADS: usize = 4;
/// Largest chunk that is unpacked here, in bytes: several are in memory.
const LARGEST: usize = 16 << 20;
/// Bytes of an array that are unpacked ahead, and the fewest chunks.
const AHEAD: usize = 64 << 10;
const FEWEST: usize = 2;

/// How the chunks of an array are packed.
#[derive(Debug, Clone, Copy)]
pub struct Packing {
    number: NumberType,
    /// Numbers of a chunk.
    length: usize,
    /// Whether the bytes of its numbers are ordered by significance.
    shuffled: bool,
}

impl Packing {
    /// That of a dataset; `None` if the HDF5 library has to read it.
    pub fn of(data: &Dataset) -> Option<Self> {
        let shuffled = match data.filters()[..] {
            [Filter::Deflate(_)] => false,
            [Filter::Shuffle, Filter::Deflate(_)] => true,
            _ => return None,
        };
        let (chunk, number) = (data.chunk()?, number_in_place(data)?);
        let &[length] = &chunk[..] else { return None };
        let packing = Packing { number, length, shuffled };
        let is_whole = data.num_chunks() == Some(data.size().div_ceil(length.max(1)));
        let file = data.file().ok()?;
        (is_whole && packing.bytes() <= LARGEST && file.userblock() == 0).then_some(packing)
    }

    /// Bytes of an unpacked chunk.
    fn bytes(&self) -> usize {
        self.length * self.number.size()
    }

    /// Number of chunks that are unpacked ahead of the one in use.
    fn ahead(&self) -> usize {
        (AHEAD / self.bytes().max(1)).max(FEWEST)
    }

    /// Bytes of unpacked chunks in memory at a time.
    pub fn memory(&self) -> usize {
        (self.ahead() + 1) * self.bytes()
    }
}

/// Where a chunk is in the file.
#[derive(Debug, Clone, Copy)]
struct Place {
    start: u64,
    size: usize,
    /// Whether the writer compressed it, and ordered its bytes: filters that do not pay are skipped.
    is_packed: bool,
    is_shuffled: bool,
}

/// A chunk to unpack.
struct Job {
    chunk: usize,
    place: Place,
    packing: Packing,
    file: Arc<File>,
    memory: Vec<u8>,
    done: Sender<Unpacked>,
}

/// The number of a chunk, and its bytes.
type Unpacked = (usize, IoResult<Vec<u8>>);

/// Threads that unpack chunks, until this and all arrays that they serve are gone.
#[derive(Clone)]
pub struct Unpackers(Sender<Job>);

impl Unpackers {
    /// As many as there are processors for, but at most [`THREADS`].
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn start() -> IoResult<Self> {
        let (jobs, to_do) = channel();
        let to_do = Arc::new(Mutex::new(to_do));
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..processors.min(THREADS) {
            let to_do = to_do.clone();
            std::thread::Builder::new().name("unpack".into()).spawn(move || unpack_all(&to_do))?;
        }
        Ok(Unpackers(jobs))
    }
}

/// The body of a thread.
fn unpack_all(to_do: &Mutex<Receiver<Job>>) {
    let (mut inflater, mut packed, mut shuffled) = (Decompress::new(true), Vec::new(), Vec::new());
    loop {
        // Only the wait for a job is within the lock.
        let Ok(Ok(job)) = to_do.lock().map(|to_do| to_do.recv()) else { return };
        let Job { chunk, place, packing, file, mut memory, done } = job;
        memory.resize(packing.bytes(), 0);
        let mut unpack = || {
            let inflated = if place.is_shuffled { &mut shuffled } else { &mut memory };
            inflated.resize(packing.bytes(), 0);
            if place.is_packed {
                packed.resize(place.size, 0);
                file.read_exact_at(&mut packed, place.start)?;
                inflater.reset(true);
                let status = inflater.decompress(&packed, inflated, FlushDecompress::Finish)?;
                if status != Status::StreamEnd || inflater.total_out() != packing.bytes() as u64 {
                    return Err(IoError::new(ErrorKind::InvalidData, "a chunk has another size than it should"));
                }
            } else {
                file.read_exact_at(inflated, place.start)?;
            }
            if place.is_shuffled {
                unshuffle(&shuffled, packing.number.size(), &mut memory);
            }
            Ok(())
        };
        let unpacked = unpack().map(|()| memory);
        // The array may be gone.
        let _ = done.send((chunk, unpacked));
    }
}

/// Puts the bytes of each number together, of which the first ones of all numbers come first, then the second ones.
fn unshuffle(bytes: &[u8], size: usize, out: &mut [u8]) {
    for (at, plane) in bytes.chunks_exact((bytes.len() / size).max(1)).enumerate() {
        out.chunks_exact_mut(size).zip(plane).for_each(|(number, byte)| number[at] = *byte);
    }
}

/// An array whose chunks are unpacked ahead.
pub struct PackedArray {
    data: Dataset,
    file: Arc<File>,
    packing: Packing,
    /// Places that are known, in order: to find one takes the library the longer the more come before it.
    places: Vec<Option<Place>>,
    /// The chunk in use and those ahead; `None` while they are unpacked.
    chunks: HashMap<usize, Option<IoResult<Vec<u8>>>>,
    unpacked: Receiver<Unpacked>,
    done: Sender<Unpacked>,
    /// Memory of chunks that are no longer needed.
    spare: Vec<Vec<u8>>,
}

impl PackedArray {
    /// The array in a dataset of the file.
    pub fn new(data: Dataset, file: Arc<File>, packing: Packing) -> Self {
        let places = vec![None; data.size().div_ceil(packing.length.max(1))];
        let (done, unpacked) = channel();
        PackedArray { data, file, packing, places, chunks: HashMap::new(), unpacked, done, spare: Vec::new() }
    }

    pub fn name(&self) -> String {
        self.data.name()
    }

    /// The numbers `range`: calls `decode` with the bytes of some of them, and their places among those.
    ///
    /// # Errors
    /// If a chunk cannot be read or unpacked: its entries, and why.
    pub fn read(
        &mut self,
        range: Range<usize>,
        threads: &Unpackers,
        mut decode: impl FnMut(NumberType, &[u8], Range<usize>),
    ) -> Result<(), (Range<usize>, IoError)> {
        let Packing { number, length, .. } = self.packing;
        let mut from = range.start;
        while from < range.end {
            let chunk = from / length;
            let end = range.end.min((chunk + 1) * length);
            let bytes = self.chunk(chunk, threads).map_err(|e| (chunk * length..end, e))?;
            let part = &bytes[(from - chunk * length) * number.size()..(end - chunk * length) * number.size()];
            decode(number, part, from - range.start..end - range.start);
            from = end;
        }
        Ok(())
    }

    fn chunk(&mut self, chunk: usize, threads: &Unpackers) -> IoResult<&[u8]> {
        let wanted = chunk..self.places.len().min(chunk + 1 + self.packing.ahead());
        for (_, old) in self.chunks.extract_if(|at, _| !wanted.contains(at)) {
            self.spare.extend(old.and_then(Result::ok));
        }
        self.spare.truncate(wanted.len());
        for at in wanted {
            if !self.chunks.contains_key(&at) {
                self.request(at, threads)?;
                self.chunks.insert(at, None);
            }
        }
        while matches!(self.chunks.get(&chunk), Some(None)) {
            let (at, bytes) = self.unpacked.recv().map_err(IoError::other)?;
            match self.chunks.get_mut(&at) {
                Some(slot) => *slot = Some(bytes),
                None => self.spare.extend(bytes.ok()),
            }
        }
        match self.chunks.get_mut(&chunk) {
            Some(Some(Ok(bytes))) => Ok(bytes),
            Some(Some(failed)) => {
                let again = || IoError::other("could not be read before");
                Err(std::mem::replace(failed, Err(again())).err().unwrap_or_else(again))
            }
            _ => Err(IoError::other("was not requested")),
        }
    }

    /// Has a chunk unpacked.
    fn request(&mut self, chunk: usize, threads: &Unpackers) -> IoResult<()> {
        let place = match self.places[chunk] {
            Some(place) => place,
            None => self.find(chunk)?,
        };
        self.places[chunk] = Some(place);
        let memory = self.spare.pop().unwrap_or_default();
        let (file, done) = (self.file.clone(), self.done.clone());
        let job = Job { chunk, place, packing: self.packing, file, memory, done };
        threads.0.send(job).map_err(|_| IoError::other("the threads that unpack chunks have ended"))
    }

    fn find(&self, chunk: usize) -> IoResult<Place> {
        let invalid = |what: &'static str| IoError::new(ErrorKind::InvalidData, what);
        let found = self.data.chunk_info(chunk).ok_or_else(|| invalid("a chunk is missing"))?;
        if found.offset != [(chunk * self.packing.length) as u64] {
            return Err(invalid("the chunks have another order than their entries"));
        }
        let skipped = |filter: usize| found.filter_mask >> filter & 1 == 1;
        let shuffled = self.packing.shuffled;
        Ok(Place {
            start: found.addr,
            size: found.size as usize,
            is_packed: !skipped(usize::from(shuffled)),
            is_shuffled: shuffled && !skipped(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array1;

    use super::*;

    /// A file with the numbers in chunks of 700, under each of these names.
    fn written(path: &std::path::Path, numbers: &Array1<f64>) {
        let file = hdf5::File::create(path).unwrap();
        let new = || file.new_dataset_builder().chunk(700);
        new().deflate(1).with_data(numbers).create("plain").unwrap();
        new().shuffle().deflate(4).with_data(numbers).create("shuffled").unwrap();
        new().deflate(1).with_data(&numbers.mapv(|x| x as i32)).create("i32").unwrap();
        new().shuffle().deflate(1).with_data(&numbers.mapv(|x| x as u8)).create("u8").unwrap();
        new().shuffle().with_data(numbers).create("unpacked").unwrap();
        file.new_dataset_builder().with_data(numbers).create("whole").unwrap();
    }

    /// The numbers `range` of an array.
    fn numbers(
        array: &mut PackedArray,
        range: Range<usize>,
        threads: &Unpackers,
    ) -> Result<Vec<f64>, (Range<usize>, IoError)> {
        let mut out = vec![0.0; range.len()];
        let read = array.read(range, threads, |number, bytes, at| {
            number.decode(bytes, cfg!(target_endian = "big"), &mut out[at]);
        });
        read.map(|()| out)
    }

    #[test]
    fn chunks_are_those_of_the_library_in_any_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.h5");
        // The second half does not compress, and is stored as it is.
        let noise = |i: u64| f64::from_bits((i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12) | 0x3ff0_0000_0000_0000);
        let mixed = Array1::from_shape_fn(10_000, |i| if i < 5000 { (i % 200) as f64 } else { noise(i as u64) });
        written(&path, &mixed);
        let (opened, file) = (hdf5::File::open(&path).unwrap(), Arc::new(File::open(&path).unwrap()));
        let threads = Unpackers::start().unwrap();
        for (name, cast) in [
            ("plain", (|x| x) as fn(f64) -> f64),
            ("shuffled", |x| x),
            ("i32", |x| f64::from(x as i32)),
            ("u8", |x| f64::from(x as u8)),
        ] {
            let data = opened.dataset(name).unwrap();
            let packing = Packing::of(&data).unwrap();
            let mut array = PackedArray::new(data, file.clone(), packing);
            for range in [0..10, 10..3000, 3000..3001, 6999..10_000, 0..2000, 4000..4000] {
                let expected = mixed.slice(ndarray::s![range.clone()]).mapv(cast);
                assert_eq!(
                    numbers(&mut array, range.clone(), &threads).unwrap(),
                    expected.to_vec(),
                    "{name} {range:?}"
                );
                assert!(array.chunks.len() <= packing.ahead() + 1 && array.spare.len() <= 2 * packing.ahead() + 2);
            }
        }
        for name in ["unpacked", "whole"] {
            assert!(Packing::of(&opened.dataset(name).unwrap()).is_none(), "{name}");
        }
    }

    #[test]
    fn a_damaged_chunk_fails_when_it_is_reached() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.h5");
        written(&path, &Array1::from_shape_fn(10_000, |i| (i % 200) as f64));
        let opened = hdf5::File::open(&path).unwrap();
        let data = opened.dataset("plain").unwrap();
        let hit = data.chunk_info(3).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.write_all_at(&[0xff; 16], hit.addr + hit.size / 2).unwrap();
        let packing = Packing::of(&data).unwrap();
        let mut array = PackedArray::new(data, Arc::new(file), packing);
        let threads = Unpackers::start().unwrap();
        let mut read = |range| numbers(&mut array, range, &threads);
        assert_eq!(read(0..2100).unwrap().len(), 2100);
        assert_eq!(read(2000..2101).unwrap_err().0, 2100..2101);
        assert!(read(2100..2101).is_err());
        assert_eq!(read(2800..2900).unwrap().len(), 100, "others are read");
    }
}
