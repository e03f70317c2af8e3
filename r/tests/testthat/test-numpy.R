test_that("arrays come back from an archive, whose checksums are right", {
    path <- tempfile(fileext = ".npz")
    arrays <- list(V = matrix(runif(6), 2), text = "gr\u00fcn, {\"a\": 1}", whole = 1:5, one = 2.5, none = numeric())
    write_npz(arrays, path)
    for (name in c("V", "text", "one", "none")) expect_equal(read_npz(path, name), arrays[[name]], label = name)
    skip_if(Sys.which("unzip") == "", "no unzip, which checks the sums")
    checks <- function() suppressWarnings(system2("unzip", c("-tq", shQuote(path)), stdout = FALSE, stderr = FALSE))
    expect_equal(checks(), 0)
    damaged <- readBin(path, "raw", file.size(path))
    # The last byte of V: 20 bytes of extra field and 5 of the name follow the header of 30.
    at <- 30 + 5 + 20 + 128 + 6 * 8
    damaged[at] <- xor(damaged[at], as.raw(1))
    writeBin(damaged, path)
    expect_gt(checks(), 0)
})

test_that("headers have the lengths that NumPy wants", {
    for (shape in list(integer(), 3, c(5, 4), c(123456789, 4294967296))) {
        header <- npy_header("<f8", shape)
        expect_equal(length(header) %% 64, 0)
        expect_match(rawToChar(header[-(1:10)]), "\\}\\s+\n$")
    }
    expect_match(rawToChar(npy_header("<f8", c(1e5, 4294967296))[-(1:10)]), "'shape': (100000, 4294967296,)", fixed = TRUE)
    expect_match(rawToChar(npy_header("<U3", integer())[-(1:10)]), "'shape': (), }", fixed = TRUE)
    expect_equal(bytes(258, 4), as.raw(c(2, 1, 0, 0)))
})
