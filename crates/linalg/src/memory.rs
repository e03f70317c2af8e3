//! Prefetching, and the advice on large pages, for which Rust has no safe interface.

/// Bytes of a cache line.
pub const CACHE_LINE: usize = 64;

/// Prefetches every cache line of a slice into the second-level cache.
#[inline(always)]
pub fn prefetch<T>(slice: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in slice.chunks((CACHE_LINE / size_of::<T>().max(1)).max(1)) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch has no visible effect and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = slice;
}

/// Prefetches the cache line at this address, which need not be valid, into the first-level cache.
#[inline(always)]
pub fn prefetch_line<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no visible effect and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Advises the system to use large pages for a large slice, best before it is first written: access to distant rows then
/// misses the TLB less often. A refusal has no effect.
pub fn large_pages<T>(slice: &[T]) {
    #[cfg(target_os = "linux")]
    {
        // A multiple of the size of all pages: those of ARM have up to 64 KiB.
        const PAGE: usize = 1 << 16;
        let (start, length) = (slice.as_ptr().addr().next_multiple_of(PAGE), size_of_val(slice));
        if length >= 4 << 20 {
            let end = (slice.as_ptr().addr() + length) / PAGE * PAGE;
            // SAFETY: the range consists of whole pages of the slice, and the advice does not change their contents.
            unsafe {
                libc::madvise(slice.as_ptr().with_addr(start).cast_mut().cast(), end - start, libc::MADV_HUGEPAGE)
            };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = slice;
}
