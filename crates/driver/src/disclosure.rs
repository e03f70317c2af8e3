//! Whether a run would tell more of a party's rows or columns than its parties allow.

use fednmf_data::Layout;
use fednmf_methods::method::ConfiguredMethod;
use fednmf_methods::shared::disclosure::{Disclosure, Duration, PrivatePart};
use fednmf_methods::shared::dp::DpParams;

/// The first risk of a run that its parties do not accept; `None` if there is none, or noise hides what is sent.
pub fn found(
    method: &dyn ConfiguredMethod,
    layout: &Layout,
    (m, n): (usize, usize),
    k: usize,
    run: Duration,
) -> Option<Disclosure> {
    let groups = method.groups();
    let params = groups.disclosure?;
    if groups.dp.is_some_and(DpParams::is_on) {
        return None;
    }
    let cuts = layout.cuts(m, n, None, None);
    let (parts, length, what) = match layout {
        Layout::PartyRows { .. } => (cuts.rows, n, "rows"),
        Layout::PartyColumns { .. } => (cuts.cols, m, "columns"),
        Layout::Grid { .. } | Layout::RowsAndColumns { .. } => return None,
    };
    let counts: Vec<usize> = parts.iter().map(std::ops::Range::len).collect();
    let threshold = groups.threshold.and_then(|group| group.secure_threshold.as_ref());
    // As many parties as can go on can also unmask any other.
    let unmasked = threshold.is_some_and(|&threshold| params.colluding >= threshold);
    let part = PrivatePart { counts: &counts, length, k, masked: method.masks_sums() && !unmasked, what };
    params.check(&part, method.opened_sums(), run)
}
