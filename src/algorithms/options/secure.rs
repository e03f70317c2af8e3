//! The options of the methods for private columns.

use super::{Check, Opt};

pub static ORDER: Opt = Opt {
    name: "order",
    value: "ORDER",
    help: "Which factor a party updates first: v-first, or u-first as printed in the paper",
    check: Check::OneOf(&["v-first", "u-first"]),
};
pub static WEIGHTS: Opt = Opt {
    name: "weights",
    value: "HOW",
    help: "Weights of the parties in averages of U: columns (as many as a party has, so that each column counts alike) or \
           equal, as printed in the paper; they differ where the parties' shares do",
    check: Check::OneOf(&["columns", "equal"]),
};
pub static SECURE_SUM: Opt = Opt {
    name: "secure-sum",
    value: "",
    help: "Mask every share of a sum over parties, so that only the sum is seen: keys by X25519, masks by ChaCha20, in \
           64-bit fixed point",
    check: Check::Flag,
};
pub static HEADROOM: Opt = Opt {
    name: "headroom",
    value: "BITS",
    help: "Room of --secure-sum above the expected size of a sum's entries, in bits; what does not fit ends the run, and \
           each bit more costs one of precision",
    check: Check::Count { min: 1 },
};
pub static SECURE_THRESHOLD: Opt = Opt {
    name: "secure-threshold",
    value: "T|none",
    help: "With --secure-sum: sums go on without parties that vanish as long as T are left, by secrets that are shared out \
           for each sum (Bonawitz et al.); T parties together can then uncover any other. A rank that dies ends the run \
           all the same",
    check: Check::CountOrNone { min: 2 },
};
pub static MAX_RELEASES: Opt = Opt {
    name: "max-releases",
    value: "N",
    help: "Sketches of the data that may be released; 0: the most from which the data cannot be computed",
    check: Check::Count { min: 0 },
};
pub static I_KNOW: Opt = Opt {
    name: "i-know-this-leaks",
    value: "",
    help: "Allow releases that show the data: raw columns, or as many sketches as determine it",
    check: Check::Flag,
};
pub static RECORD_RELEASES: Opt = Opt {
    name: "record-releases",
    value: "F.h5|none",
    help: "Keep what every party sees of the data, the released sketches, in this file; for 'fednmf attack', which computes \
           from them what they give away. The file is as secret as the data",
    check: Check::File,
};
pub static RHO: Opt = Opt {
    name: "rho",
    value: "X",
    help: "Relaxation: the server's merge number t takes over the part rho/(rho+t) of a party's U; auto: the number of \
           parties",
    check: Check::NumberOrAuto,
};
pub static CLOCK: Opt = Opt {
    name: "clock",
    value: "KIND",
    help: "What decides the order of merges: virtual (counted work: the same result on any number of ranks, and every time) or \
           real (who comes first; rank 0 serves, alone where there are more ranks than parties)",
    check: Check::OneOf(&["virtual", "real"]),
};
pub static RECORD_ORDER: Opt = Opt {
    name: "record-order",
    value: "F|none",
    help: "Write the order of merges to this file, a party on each line, for --replay",
    check: Check::File,
};
pub static REPLAY: Opt = Opt {
    name: "replay",
    value: "F|none",
    help: "Merge in the order that --record-order wrote: the same U and V as in that run, bit for bit, on any number of ranks",
    check: Check::File,
};
pub static PARTY_TIMEOUT: Opt = Opt {
    name: "party-timeout",
    value: "S",
    help: "With --clock real: a rank of which nothing is heard for S seconds, while it works on a turn, is lost",
    check: Check::Number { min: 0.001, max: 1e9 },
};
