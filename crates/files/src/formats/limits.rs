//! Limits on what a header may declare, checked before any memory is allocated for it.

/// Maximum number of bytes that one byte of a gzip stream can expand to.
const MAX_EXPANSION: u64 = 1032;

/// Maximum number of uncompressed bytes that a file of this size can hold.
pub fn unpacked_bytes(size: u64, compressed: bool) -> u64 {
    if compressed { size.saturating_mul(MAX_EXPANSION) } else { size }
}

/// Refuses implausible shapes: an empty matrix, or far more rows or columns than entries.
///
/// # Errors
/// If the shape is implausible: the reason.
pub fn check_shape(rows: usize, cols: usize, entries: Option<u64>) -> Result<(), String> {
    if rows == 0 || cols == 0 {
        return Err(format!("the matrix is empty: {rows} × {cols}"));
    }
    let Some(entries) = entries else { return Ok(()) };
    let most = entries.saturating_mul(1000).saturating_add(1_000_000).min(i32::MAX as u64);
    if rows as u64 > most || cols as u64 > most {
        return Err(format!(
            "the header promises {rows} × {cols} with {entries} entries: more rows or columns than this program accepts \
             (2147483647, and 1000 for each entry)"
        ));
    }
    Ok(())
}
