test_that("new columns get the exact nonnegative least squares, by names", {
    skip_without_program()
    set.seed(1)
    x <- matrix(rexp(30 * 40), 30, dimnames = list(paste0("g", 1:30), paste0("c", 1:40)))
    fit <- nmf(x[, 1:20], 4, quiet = TRUE)
    new <- x[, 21:40]
    expected <- naive_nnls(new, basis(fit))
    dimnames(expected) <- list(paste0("NMF_", 1:4), colnames(new))
    expect_equal(project(fit, new), expected, tolerance = 1e-6)
    expect_equal(predict(fit, unname(new)), `colnames<-`(expected, NULL), tolerance = 1e-6)
    expect_equal(project(fit, Matrix::Matrix(new[30:1, ], sparse = TRUE)), expected, tolerance = 1e-6)
    more <- rbind(new, extra = 1)
    expect_silent(all <- suppressMessages(project(fit, more)))
    expect_equal(all, expected, tolerance = 1e-6)
    expect_warning(some <- project(fit, more[-(1:10), ]), "10 of the 30 rows .* missing .*; 1 of its rows")
    expect_equal(unname(some), unname(naive_nnls(new[-(1:10), ], basis(fit)[-(1:10), ])), tolerance = 1e-6)
    expect_identical(predict(fit), coef(fit))
})

test_that("penalties and divergences of the factorisation are those of the projection, with rows missing too", {
    skip_without_program()
    set.seed(2)
    x <- matrix(rexp(30 * 40), 30, dimnames = list(paste0("g", 1:30), NULL))
    fit <- nmf(x, 3, alpha_u = 0.05, alpha_v = 0, l1_ratio = 0.4, quiet = TRUE)
    # The weight is multiplied by the number of rows of the factorisation.
    expected <- function(rows) unname(naive_nnls(x[rows, ], basis(fit)[rows, ], 0.05 * 30 * 0.4, 0.05 * 30 * 0.6))
    expect_equal(unname(project(fit, x)), expected(1:30), tolerance = 1e-6)
    expect_warning(some <- project(fit, x[6:30, ]), "5 of the 30")
    expect_equal(unname(some), expected(6:30), tolerance = 1e-6)
    counts <- matrix(rpois(30 * 40, 2), 30, dimnames = list(paste0("g", 1:30), NULL))
    fit <- nmf(counts[, 1:30], 3, loss = "kullback-leibler", quiet = TRUE)
    for (rows in list(1:30, 6:30)) {
        new <- counts[rows, 31:40]
        basis <- basis(fit)[rows, ]
        found <- suppressWarnings(project(fit, new))
        coef <- matrix(1, 3, 10)
        for (step in 1:5000) coef <- coef * crossprod(basis, new / (basis %*% coef)) / colSums(basis)
        expect_equal(unname(found), unname(coef), tolerance = 1e-3)
        expect_lt(divergence(new, basis %*% found), divergence(new, basis %*% coef) * (1 + 1e-6))
    }
})

test_that("what does not fit is refused", {
    fit <- structure(list(basis = matrix(1, 4, 2, dimnames = list(letters[1:4], NULL)), params = "{}"), class = "fednmf")
    expect_error(project(fit, matrix(1, 3, 2)), "3 rows, but the factorisation has 4")
    expect_error(project(fit, matrix(1, 2, 2, dimnames = list(c("a", "a"), NULL))), "the name a")
    expect_error(project(fit, matrix(1, 2, 2, dimnames = list(c("x", "y"), NULL))), "none of the rows")
    expect_error(project(matrix(1, 2, 2), matrix(1, 2, 2)), "result of nmf")
})
