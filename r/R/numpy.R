# Files of NumPy. Arrays in C order are the transposes of R's, so they are written and read with their dimensions reversed.

# `value` as `size` little-endian bytes.
bytes <- function(value, size) as.raw(value %/% 256^(seq_len(size) - 1) %% 256)

npy_header <- function(type, shape) {
    lengths <- if (length(shape) > 0) paste0(format(shape, scientific = FALSE, trim = TRUE), ",", collapse = " ") else ""
    text <- sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", type, lengths)
    text <- paste0(formatC(text, width = -(117 + 64 * (nchar(text) %/% 117))), "\n")
    c(as.raw(0x93), charToRaw("NUMPY"), bytes(1, 2), bytes(nchar(text), 2), charToRaw(text))
}

# Writes numbers, or one string, to the connection `to` and returns the number of bytes.
write_npy <- function(x, to) {
    if (is.character(x)) {
        x <- utf8ToInt(x)
        header <- npy_header(paste0("<U", length(x)), integer())
    } else {
        shape <- if (is.null(dim(x))) length(x) else rev(dim(x))
        header <- npy_header(if (is.integer(x)) "<i4" else "<f8", shape)
    }
    writeBin(header, to)
    # A call writes 2 GB at most.
    step <- 2^26
    for (part in seq_len(ceiling(length(x) / step))) {
        writeBin(x[((part - 1) * step + 1):min(part * step, length(x))], to, endian = "little")
    }
    length(header) + length(x) * if (is.double(x)) 8 else 4
}

# Writes a list of arrays as a zip archive of uncompressed .npy files, with 64-bit lengths.
write_npz <- function(arrays, path) {
    to <- file(path, "wb")
    on.exit(close(to))
    position <- 0
    directory <- raw()
    for (name in names(arrays)) {
        checksum <- crc32(arrays[[name]])
        file <- charToRaw(paste0(name, ".npy"))
        length <- checksum$length
        # Version 4.5, no flags, stored, 1980-01-01; the lengths are in the extra field.
        common <- c(bytes(45, 2), bytes(0, 4), bytes(0, 2), bytes(33, 2), checksum$crc, bytes(2^32 - 1, 4),
            bytes(2^32 - 1, 4), bytes(length(file), 2))
        header <- c(charToRaw("PK"), bytes(0x0403, 2), common, bytes(20, 2), file,
            bytes(1, 2), bytes(16, 2), bytes(length, 8), bytes(length, 8))
        directory <- c(directory, charToRaw("PK"), bytes(0x0201, 2), bytes(45, 2), common, bytes(28, 2), bytes(0, 10),
            bytes(2^32 - 1, 4), file, bytes(1, 2), bytes(24, 2), bytes(length, 8), bytes(length, 8), bytes(position, 8))
        writeBin(header, to)
        position <- position + length(header) + write_npy(arrays[[name]], to)
    }
    count <- length(arrays)
    end <- position + length(directory)
    writeBin(c(directory,
        charToRaw("PK"), bytes(0x0606, 2), bytes(44, 8), bytes(45, 2), bytes(45, 2), bytes(0, 8), bytes(count, 8),
        bytes(count, 8), bytes(length(directory), 8), bytes(position, 8),
        charToRaw("PK"), bytes(0x0706, 2), bytes(0, 4), bytes(end, 8), bytes(1, 4),
        charToRaw("PK"), bytes(0x0605, 2), bytes(0, 4), bytes(count, 2), bytes(count, 2), bytes(length(directory), 4),
        bytes(2^32 - 1, 4), bytes(0, 2)), to)
    invisible(path)
}

# The CRC-32 of an array as .npy, which R computes for gzip only: the trailer of such a file begins with it.
crc32 <- function(x) {
    path <- tempfile()
    on.exit(unlink(path))
    to <- gzfile(path, "wb", compression = 0)
    length <- tryCatch(write_npy(x, to), finally = close(to))
    from <- file(path, "rb")
    on.exit(close(from), add = TRUE)
    seek(from, file.size(path) - 8)
    list(crc = readBin(from, "raw", 4), length = length)
}

# An array of numbers, or a string, from an .npz file.
read_npz <- function(path, name) {
    from <- unz(path, paste0(name, ".npy"), "rb")
    on.exit(close(from))
    lead <- as.integer(readBin(from, "raw", 10))
    header <- rawToChar(readBin(from, "raw", lead[9] + 256 * lead[10]))
    type <- sub(".*'descr': '<(.)(\\d+)'.*", "\\1 \\2", header)
    shape <- as.numeric(strsplit(sub(".*'shape': \\(([^)]*)\\).*", "\\1", header), ",")[[1]])
    shape <- shape[!is.na(shape)]
    count <- prod(shape)
    kind <- substr(type, 1, 1)
    size <- as.numeric(substring(type, 3))
    values <- switch(kind,
        U = return(intToUtf8(readBin(from, "integer", size * count, endian = "little"))),
        i = {
            # Whole numbers of 8 bytes, exact up to 2^53.
            halves <- matrix(readBin(from, "integer", 2 * count, endian = "little"), 2)
            halves[1, ] %% 2^32 + halves[2, ] * 2^32
        },
        f = readBin(from, "double", count, size, endian = "little"))
    if (length(shape) > 1) dim(values) <- rev(shape)
    values
}
