//! The types of values that may leave a party. The type of a value determines its protection, and only the protection
//! can create it: masks create [`MaskedWords`], noise creates [`Noised`], encryption creates [`Ciphertexts`] and
//! [`SealedShares`], secret sharing creates [`ShareWords`](crate::sharing::ShareWords), key agreement creates
//! [`PublicKeys`]. Values in the clear are [`Declared`], under the name in the method's message table.

use std::ops::{Deref, DerefMut};

/// How a value is protected when it leaves a party.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protection {
    /// Under masks that cancel in the sum over parties.
    Masked,
    /// With noise of differential privacy, whose budget the run accounts for.
    Noised,
    /// Under such masks, with a share of the noise that the sum has.
    MaskedNoised,
    /// Encrypted for its receiver.
    Encrypted,
    /// Secret shares: uniformly random to their receiver.
    Shared,
    /// Independent of the data by construction: keys, and values of types that are [`Public`].
    Public,
    /// In the clear: a leak that the message table names.
    Declared,
}

/// Values that belong to a party: its block, its factor. Computing with them is unrestricted, so their contents can be
/// reached; the value itself can be neither printed nor serialised, and the communicator of parties accepts releases only.
///
/// ```compile_fail,E0277
/// # use fednmf_privacy::Private;
/// println!("{:?}", Private::new(1.0));
/// ```
///
/// ```compile_fail,E0277
/// # use fednmf_privacy::Private;
/// serde_json::to_string(&Private::new(1.0)).unwrap();
/// ```
pub struct Private<T>(T);

/// The right to write numbers into a release from outside: to receive into it, or to sum it over the ranks. The communicator
/// has it; methods have no use for it, and a test checks that they do not name it.
///
/// ```compile_fail,E0061
/// # use fednmf_privacy::{PublicKeys, Transfer};
/// // Numbers of the data that pretend to be a public key.
/// PublicKeys::<u64>::room(1).elements()[0] = 7;
/// ```
///
/// ```compile_fail,E0061
/// # use fednmf_privacy::MaskedWords;
/// MaskedWords::default().words_mut().fill(7);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct WireAccess(());

/// A type whose values do not depend on the data of any party: settings, what follows from settings and common shapes, and
/// what the clock or the user of a rank decides. Control messages take no others. Numbers, texts and lists of them are not
/// public, since they may have been computed from data; whoever makes a type public states why it is, and a test lists all
/// statements.
///
/// ```compile_fail,E0277
/// # use fednmf_privacy::Public;
/// fn send(_: &impl Public) {}
/// let nonzeros = [1.0, 0.0, 2.0].iter().filter(|x| **x != 0.0).count();
/// send(&nonzeros);
/// ```
pub trait Public {
    /// Why the values depend on no data.
    const WHY: &'static str;
}

impl<P: Public> Public for Option<P> {
    const WHY: &'static str = P::WHY;
}

impl WireAccess {
    /// For a communicator.
    pub const fn of_communicator() -> Self {
        WireAccess(())
    }
}

impl Protection {
    pub const ALL: [Self; 7] = [
        Protection::Masked,
        Protection::Noised,
        Protection::MaskedNoised,
        Protection::Encrypted,
        Protection::Shared,
        Protection::Public,
        Protection::Declared,
    ];

    /// Its name in the trace.
    pub fn name(self) -> &'static str {
        match self {
            Protection::Masked => "masked",
            Protection::Noised => "noised",
            Protection::MaskedNoised => "masked and noised",
            Protection::Encrypted => "encrypted",
            Protection::Shared => "secret shares",
            Protection::Public => "public",
            Protection::Declared => "in the clear",
        }
    }

    /// The protection of a name in a trace or transcript, also of an earlier version.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "declared" => Some(Protection::Declared),
            "shared" => Some(Protection::Shared),
            _ => Self::ALL.into_iter().find(|protection| protection.name() == name),
        }
    }
}

impl<T> Private<T> {
    pub fn new(value: T) -> Self {
        Private(value)
    }
}

impl<T> Deref for Private<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Private<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

pub(super) mod sealed {
    pub trait Sealed {}
}

/// Numbers that may leave a party for a sum without masks.
pub trait Release<T>: sealed::Sealed {
    const PROTECTION: Protection;

    fn values(&self) -> &[T];
}

/// Numbers that leave in the clear.
#[derive(Clone, Copy)]
pub struct Declared<'a, T>(pub &'a [T]);

/// Numbers that everybody can draw from the public seed.
#[derive(Clone, Copy)]
pub struct Seeded<'a, T>(pub &'a [T]);

/// Numbers with noise; only [`super::Releases`] creates them.
pub struct Noised<'a, T>(&'a mut [T]);

impl<'a, T: Copy> Noised<'a, T> {
    pub(super) fn new(values: &'a mut [T]) -> Self {
        Noised(values)
    }

    pub fn slice(&self) -> &[T] {
        self.0
    }

    /// Applies f to each number. Post-processing of noised numbers costs no privacy.
    #[must_use]
    pub fn map(self, f: impl Fn(T) -> T) -> Self {
        self.0.iter_mut().for_each(|x| *x = f(*x));
        self
    }
}

impl<T> sealed::Sealed for Declared<'_, T> {}
impl<T> sealed::Sealed for Seeded<'_, T> {}
impl<T> sealed::Sealed for &Noised<'_, T> {}

impl<T> Release<T> for Declared<'_, T> {
    const PROTECTION: Protection = Protection::Declared;

    fn values(&self) -> &[T] {
        self.0
    }
}

impl<T> Release<T> for Seeded<'_, T> {
    const PROTECTION: Protection = Protection::Public;

    fn values(&self) -> &[T] {
        self.0
    }
}

impl<T> Release<T> for &Noised<'_, T> {
    const PROTECTION: Protection = Protection::Noised;

    fn values(&self) -> &[T] {
        self.0
    }
}

/// Numbers that one party sends to another.
pub trait Transfer<T>: sealed::Sealed {
    const PROTECTION: Protection;

    /// The numbers, for the communicator, which sends them or receives into them.
    fn elements(&mut self, access: WireAccess) -> &mut [T];
}

/// Numbers that are sent in the clear.
pub struct DeclaredMut<'a, T>(pub &'a mut [T]);

impl<T> sealed::Sealed for DeclaredMut<'_, T> {}

impl<T> Transfer<T> for DeclaredMut<'_, T> {
    const PROTECTION: Protection = Protection::Declared;

    fn elements(&mut self, _: WireAccess) -> &mut [T] {
        self.0
    }
}

/// Proof that a party's words for a masked sum contain their share of the noise; only [`super::Releases`] creates it.
pub struct NoiseAdded(());

impl NoiseAdded {
    pub(super) fn new() -> Self {
        NoiseAdded(())
    }
}

/// A sum of masked terms, modulo 2⁶⁴, preceded by flags that say which parties are in it.
#[derive(Default)]
pub struct MaskedWords {
    words: Vec<u64>,
    flags: usize,
}

impl MaskedWords {
    /// Removes all terms: `flags` flags and `length` words of zero.
    pub fn clear(&mut self, flags: usize, length: usize) {
        self.flags = flags;
        self.words.clear();
        self.words.resize(flags + length, 0);
    }

    /// Sets the flag of `party`, which is in the sum.
    pub fn include(&mut self, party: usize) {
        assert!(party < self.flags);
        self.words[party] = 1;
    }

    /// Adds a term to which its party's masks have been applied.
    pub(super) fn add(&mut self, masked: &[u64]) {
        self.words[self.flags..].iter_mut().zip(masked).for_each(|(sum, x)| *sum = sum.wrapping_add(*x));
    }

    /// Flags and words, for the communicator, which adds those of the other ranks.
    pub fn words_mut(&mut self, _: WireAccess) -> &mut [u64] {
        &mut self.words
    }

    pub fn flags(&self) -> &[u64] {
        &self.words[..self.flags]
    }

    /// The sum, without the flags.
    pub fn sum(&self) -> &[u64] {
        &self.words[self.flags..]
    }
}

/// Public keys, which anybody may know: bytes, or words of a modulus.
pub struct PublicKeys<T>(Vec<T>);

impl<T: Copy + Default> PublicKeys<T> {
    pub(super) fn new(keys: Vec<T>) -> Self {
        PublicKeys(keys)
    }

    /// Space for a key of `length` elements, to receive into.
    pub fn room(length: usize) -> Self {
        PublicKeys(vec![T::default(); length])
    }

    pub fn as_slice(&self) -> &[T] {
        &self.0
    }
}

impl<T> sealed::Sealed for PublicKeys<T> {}

impl<T> Transfer<T> for PublicKeys<T> {
    const PROTECTION: Protection = Protection::Public;

    fn elements(&mut self, _: WireAccess) -> &mut [T] {
        &mut self.0
    }
}

/// Numbers encrypted under a key of their receiver.
#[derive(Default)]
pub struct Ciphertexts(Vec<u64>);

impl Ciphertexts {
    /// Space for `words` words, to receive into.
    pub fn room(words: usize) -> Self {
        Ciphertexts(vec![0; words])
    }

    pub fn words(&self) -> &[u64] {
        &self.0
    }

    #[cfg(feature = "paillier")]
    pub(super) fn words_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }

    /// The same numbers for another receiver on this rank.
    pub fn copy_from(&mut self, other: &Ciphertexts) {
        self.0.copy_from_slice(&other.0);
    }
}

impl sealed::Sealed for Ciphertexts {}

impl Transfer<u64> for Ciphertexts {
    const PROTECTION: Protection = Protection::Encrypted;

    fn elements(&mut self, _: WireAccess) -> &mut [u64] {
        &mut self.0
    }
}

/// Encrypted shares of secrets for each rank; for each sender, a flag and its shares.
#[derive(Default)]
pub struct SealedShares(Vec<Vec<u8>>);

impl SealedShares {
    pub fn by_rank(&self) -> &[Vec<u8>] {
        &self.0
    }

    pub(super) fn new(by_rank: Vec<Vec<u8>>) -> Self {
        SealedShares(by_rank)
    }
}

/// Shares of the secrets that unmask a sum and nothing else: of the seed of a party whose term is in it, or of the key of
/// one that has dropped out.
pub struct UnmaskShares(Vec<u64>);

impl UnmaskShares {
    pub fn words(&self) -> &[u64] {
        &self.0
    }

    pub(super) fn new(words: Vec<u64>) -> Self {
        UnmaskShares(words)
    }
}
