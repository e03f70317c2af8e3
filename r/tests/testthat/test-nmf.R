test_that("an exact factorisation is found", {
    skip_without_program()
    planted <- separable()
    fit <- nmf(planted$x, 3, max_iters = 5000, tol = 0, target_error = 1e-7, quiet = TRUE)
    expect_lt(relative_error(planted$x, fit$basis, fit$coef), 1e-6)
    # Columns of norm 1, in the order of the planted ones.
    expected <- sweep(planted$basis, 2, sqrt(colSums(planted$basis^2)), "/")
    order <- apply(crossprod(expected, basis(fit)), 1, which.max)
    expect_equal(sort(order), 1:3)
    expect_equal(unname(basis(fit)[, order]), expected, tolerance = 1e-4)
    expect_equal(unname(coef(fit)[order, ]), planted$coef * sqrt(colSums(planted$basis^2)), tolerance = 1e-4)
})

test_that("the error is that of the factors, as small as naive HALS finds it, at a stationary point", {
    skip_without_program()
    set.seed(2)
    x <- matrix(rexp(40 * 25), 40)
    fit <- nmf(x, 4, max_iters = 3000, tol = 1e-12, quiet = TRUE)
    expect_equal(fit$rel_error, relative_error(x, fit$basis, fit$coef), tolerance = 1e-9)
    naive <- min(replicate(5, naive_hals(x, 4, 300)))
    expect_lt(fit$rel_error, 1.02 * naive)
    gradient <- crossprod(basis(fit), fitted(fit) - x)
    scale <- max(abs(crossprod(basis(fit), x)))
    expect_gt(min(gradient) / scale, -1e-4)
    expect_lt(max(abs(gradient * coef(fit))) / scale / max(coef(fit)), 1e-4)
})

test_that("sparse, dense and whole numbers are the same matrix, and names are kept", {
    skip_without_program()
    set.seed(3)
    counts <- matrix(rpois(30 * 20, 0.7), 30, dimnames = list(paste0("g", 1:30), paste0("c", 1:20)))
    fit_of <- function(x, ...) nmf(x, 3, algo = "hals", init = "random", max_iters = 30, quiet = TRUE, ...)
    dense <- fit_of(counts + 0)
    expect_equal(dimnames(fitted(dense)), dimnames(counts))
    same <- list(counts, Matrix::Matrix(counts, sparse = TRUE), methods::as(methods::as(counts, "CsparseMatrix"), "TsparseMatrix"),
        methods::as(counts, "RsparseMatrix"))
    for (x in same) expect_equal(fitted(fit_of(x)), fitted(dense), tolerance = 1e-9)
    symmetric <- Matrix::forceSymmetric(methods::as(crossprod(counts), "CsparseMatrix"))
    expect_equal(fitted(fit_of(symmetric)), fitted(fit_of(crossprod(counts) + 0)), tolerance = 1e-9)
    expect_false(isTRUE(all.equal(fitted(fit_of(counts, seed = 2)), fitted(dense))))
})

test_that("missing entries do not count", {
    skip_without_program()
    planted <- separable()
    x <- planted$x
    x[cbind(c(10, 20), c(5, 7))] <- NA
    fit <- nmf(x, 3, missing = "nan", max_iters = 3000, tol = 0, target_error = 1e-6, quiet = TRUE)
    expect_equal(unname(fitted(fit)), planted$x, tolerance = 1e-3)
})

test_that("a run that stopped early is continued from its checkpoint", {
    skip_without_program()
    set.seed(5)
    x <- matrix(rexp(300 * 200), 300)
    checkpoint <- tempfile(fileext = ".h5")
    run <- function(...) nmf(x, 5, eval_every = 0, quiet = TRUE, ...)
    expect_error(run(checkpoint = checkpoint, max_iters = 1e8, time_limit = 0.1), "resume = TRUE")
    continued <- run(checkpoint = checkpoint, max_iters = 3000, resume = TRUE)
    expect_equal(continued$iterations, 3000)
    expect_equal(fitted(continued), fitted(run(max_iters = 3000)), tolerance = 1e-12)
})

test_that("ranks of MPI find the same factors", {
    skip_without_program()
    skip_if(Sys.which("mpirun") == "" || length(getOption("fednmf.program")) > 1, "no mpirun")
    set.seed(4)
    x <- matrix(rexp(600), 30)
    one <- nmf(x, 3, max_iters = 20, quiet = TRUE)
    for (ranks in c(2, 4)) {
        old <- options(fednmf.program = c("mpirun", "--oversubscribe", "-n", ranks, program()))
        several <- tryCatch(nmf(x, 3, max_iters = 20, quiet = TRUE), finally = options(old))
        expect_equal(fitted(several), fitted(one), tolerance = 1e-8)
    }
})

test_that("print shows sizes and error", {
    fit <- structure(list(basis = matrix(0, 5, 2), coef = matrix(0, 2, 4), rel_error = 0.25, iterations = 7, seconds = 1.5,
        stopped_by = "tol", algo = "hals"), class = "fednmf")
    expect_output(print(fit), "5 x 4 matrix, k = 2.*error 0.25, hals, 7 iterations in 1.5 s, stopped by tol")
    fit[c("rel_error", "iterations")] <- NULL
    expect_output(print(fit), "k = 2\n\n\\$basis")
})
