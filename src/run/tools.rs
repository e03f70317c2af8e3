//! The subcommands that read or write data: `generate`, `inspect`, `evaluate`.
