#' Number of components
#'
#' Compares numbers of components by several runs of each, with different starts: by the error on held-out entries, and by
#' how well the runs agree on the components.
#'
#' @param ks Numbers of components to try.
#' @param runs Runs for each.
#' @param ... Options of `fednmf sweep`, with underscores instead of hyphens: `algo = "kl-mu"`, `holdout = 0`, `max_iters`,
#'   `tol`, `seed`, ...
#' @inheritParams nmf
#' @return An object of class `fednmf_choice`: a list of
#'   * `table`: a data frame with a row for each k: `rmse` (for `kl-mu` and `kl-cd` `divergence`), the error on held-out entries
#'     `heldout` with its standard error `heldout_se`, and the agreement of the runs: `silhouette` (1: every start finds the same
#'     components), that of the least stable component `least_silhouette`, and `cosine`. `NA`: not known.
#'   * `recommended`: a number of components, or `NULL` if nothing supports a choice; `reasons` for it,
#'   * `for_prediction`, `for_interpretation`: the smallest number that predicts held-out entries as well as any, and that whose
#'     components are stable; `NULL` if there is none,
#'   * `fit`: the components on which the runs with the number for interpretation agree, or without one those with the recommended
#'     number (the mean of each over the runs), with the `coef` that fits best, as a result of [nmf()] of the matrix.
#' @examplesIf fednmf::available()
#' x <- kronecker(diag(3), matrix(runif(150, 1, 2), 15)) + 0.1 * runif(45 * 30)
#' found <- choose_k(x, 2:4, runs = 3, quiet = TRUE)
#' found
#' basis(found$fit)[1:3, ]
#' @export
choose_k <- function(x, ks, runs = 10, ..., assay = NULL, layer = NULL) {
    options <- list(...)
    data <- prepared(x, options$missing, assay, layer)
    words <- option_words(options, not_accepted)
    in_folder(function(folder) {
        input <- write_data(data, folder)
        results <- file.path(folder, "sweep")
        run(c("sweep", option_words(list(input = input, k = ks, runs = runs, output = results)), words),
            stats::setNames(c("x", "a temporary folder"), c(input, results)))
        found <- jsonlite::fromJSON(file.path(results, "sweep.json"), simplifyVector = FALSE)
        column <- function(get) {
            vapply(found$points, function(point) if (is.null(get(point))) NA_real_ else as.numeric(get(point)), 0)
        }
        table <- data.frame(k = column(function(p) p$k), rmse = column(function(p) p$rmse),
            divergence = column(function(p) p$divergence), heldout = column(function(p) p$heldout[[1]]),
            heldout_se = column(function(p) p$heldout[[2]]), silhouette = column(function(p) p$stability$mean),
            least_silhouette = column(function(p) p$stability$least), cosine = column(function(p) p$stability$cosine))
        fit <- if (!is.null(found$consensus)) {
            output <- file.path(folder, "consensus.npz")
            run(c("project", file.path(results, basename(found$consensus$file)), "--quiet",
                option_words(list(input = input, output = output))))
            read_fit(output, dimnames(data))
        }
        structure(list(table = table, recommended = found$recommended, for_prediction = found$for_prediction,
            for_interpretation = found$for_interpretation, reasons = unlist(found$reasons), fit = fit), class = "fednmf_choice")
    })
}

#' @rdname choose_k
#' @export
print.fednmf_choice <- function(x, ...) {
    print(x$table[, vapply(x$table, function(column) !all(is.na(column)), NA)], digits = 4, row.names = FALSE)
    if (is.null(x$recommended)) cat("no recommendation\n")
    else cat("recommended: k =", x$recommended, "\n")
    for (reason in x$reasons) cat("  ", reason, "\n", sep = "")
    invisible(x)
}
