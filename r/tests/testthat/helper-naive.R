# Slow and plain computations to compare with, and data with known factors.

skip_without_program <- function() skip_if_not(available(), "the program fednmf is not installed")

# Runs with this script in place of the program.
with_script <- function(lines, code) {
    path <- tempfile("program")
    writeLines(c("#!/bin/sh", lines), path)
    Sys.chmod(path, "755")
    old <- options(fednmf.program = path)
    on.exit(options(old))
    force(code)
}

# An exact product whose factors are unique up to scale and order: each component has rows and columns of its own.
separable <- function() {
    set.seed(1)
    basis <- rbind(diag(3), matrix(runif(27 * 3), 27))
    coef <- cbind(diag(3), matrix(runif(17 * 3), 3))
    list(x = basis %*% coef, basis = basis, coef = coef)
}

relative_error <- function(x, basis, coef) sqrt(sum((as.matrix(x) - basis %*% coef)^2) / sum(as.matrix(x)^2))

# Hierarchical alternating least squares, one component at a time.
naive_hals <- function(x, k, iterations) {
    basis <- matrix(runif(nrow(x) * k), nrow(x))
    coef <- matrix(runif(k * ncol(x)), k)
    for (iteration in seq_len(iterations)) {
        for (l in seq_len(k)) {
            rest <- x - basis[, -l, drop = FALSE] %*% coef[-l, , drop = FALSE]
            basis[, l] <- pmax(1e-16, rest %*% coef[l, ] / sum(coef[l, ]^2))
            coef[l, ] <- pmax(1e-16, crossprod(rest, basis[, l]) / sum(basis[, l]^2))
        }
    }
    relative_error(x, basis, coef)
}

# The minimiser of 1/2 |x - basis h|^2 + l1 |h|_1 + l2 / 2 |h|^2 over h >= 0 for each column, by trying all sets of positive
# entries.
naive_nnls <- function(x, basis, l1 = 0, l2 = 0) {
    k <- ncol(basis)
    gram <- crossprod(basis) + l2 * diag(k)
    right <- as.matrix(crossprod(basis, x)) - l1
    apply(right, 2, function(b) {
        best <- numeric(k)
        value <- 0
        for (set in seq_len(2^k - 1)) {
            free <- which(bitwAnd(set, 2^(seq_len(k) - 1)) > 0)
            h <- numeric(k)
            h[free] <- solve(gram[free, free], b[free])
            new <- sum(h * (gram %*% h)) / 2 - sum(b * h)
            if (all(h >= 0) && new < value) {
                best <- h
                value <- new
            }
        }
        best
    })
}

divergence <- function(x, fit) sum(ifelse(x > 0, x * log(x / fit), 0) - x + fit)
