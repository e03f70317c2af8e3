# Runs RcppML's nmf with its default start and prints `iteration seconds error`:
#
#     Rscript run_rcppml.R KIND MATRIX M N K ITERATIONS SECONDS SEED THREADS FACTORS
#
# KIND is dense (MATRIX has the entries by columns in f64) or sparse (the starts, rows and values of CSC). RcppML has no
# callbacks and takes no factors to start from, so each point is a run of its own from the same start, with 1.5 times
# the iterations of the previous one, until a run takes SECONDS. It writes V and then U, by components, in f64.

suppressMessages({
    library(Matrix)
    library(RcppML)
})

given <- commandArgs(trailingOnly = TRUE)
kind <- given[1]
m <- as.numeric(given[3])
n <- as.numeric(given[4])
k <- as.integer(given[5])
iterations <- as.integer(given[6])
limit <- as.numeric(given[7])
seed <- as.integer(given[8]) + 1L # 0 would be drawn from the clock
setRcppMLthreads(as.integer(given[9]))

file <- file(given[2], "rb")
if (kind == "dense") {
    x <- matrix(readBin(file, "double", m * n), m, n)
    norm2 <- sum(x * x)
} else {
    starts <- readBin(file, "integer", n + 1)
    rows <- readBin(file, "integer", starts[n + 1])
    values <- readBin(file, "double", starts[n + 1])
    x <- new("dgCMatrix", i = rows, p = starts, x = values, Dim = as.integer(c(m, n)))
    norm2 <- sum(values * values)
}
close(file)

steps <- 1
repeat {
    begin <- Sys.time()
    model <- RcppML::nmf(x, k, tol = 0, maxit = steps, verbose = FALSE, seed = seed)
    seconds <- as.numeric(Sys.time() - begin, units = "secs")
    w <- sweep(model$w, 2, model$d, "*")
    h <- model$h
    inner <- sum(as.matrix(x %*% t(h)) * w)
    residual <- norm2 - 2 * inner + sum(crossprod(w) * tcrossprod(h))
    cat(steps, seconds, sprintf("%.8f\n", sqrt(max(residual, 0) / norm2)))
    if (seconds >= limit || steps >= iterations) break
    steps <- min(iterations, max(steps + 1, floor(1.5 * steps)))
}
out <- file(given[10], "wb")
writeBin(as.vector(t(h)), out)
writeBin(as.vector(w), out)
close(out)
