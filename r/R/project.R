#' Use of components by new columns
#'
#' Finds the `coef` of new columns (cells) for the `basis` of an earlier factorisation: the minimiser of the loss and the penalty
#' with which [nmf()] was called, for the squared error by exact nonnegative least squares.
#'
#' Rows (genes) are matched by name. Rows of the factorisation that `newdata` lacks are left out of the fit, and others than those
#' of the factorisation are ignored, with a warning that counts both. Without names the rows must be the same.
#'
#' @param object A result of [nmf()].
#' @param newdata A matrix, a `SingleCellExperiment` or a `Seurat` object, as `x` of [nmf()].
#' @inheritParams nmf
#' @return For a matrix the `coef` (components times columns of `newdata`). For a `SingleCellExperiment` or `Seurat` object the same
#'   with `reducedDim(newdata, "NMF")` or the reduction `nmf`.
#' @examplesIf fednmf::available()
#' x <- matrix(rexp(600), 30, dimnames = list(paste0("gene", 1:30), NULL))
#' fit <- nmf(x[, 1:15], 3, quiet = TRUE)
#' project(fit, x[30:1, 16:20])
#' @export
project <- function(object, newdata, assay = NULL, layer = NULL) {
    fit <- fit_of(object)
    about <- jsonlite::fromJSON(fit$params)
    data <- prepared(newdata, if (!identical(about$missing, "none")) about$missing, assay, layer)
    names <- list(colnames(fit$basis), colnames(data))
    found <- matched_rows(rownames(fit$basis), rownames(data), c(nrow(fit$basis), nrow(data)), fit$basis)
    basis <- fit$basis
    if (!is.null(found)) {
        # A row of zeros in both contributes nothing to the fit.
        basis[is.na(found), ] <- 0
        here <- which(!is.na(found))
        data <- stored(sparseMatrix(here, found[here], x = 1, dims = c(length(found), nrow(data))) %*% data)
    }
    coef <- in_folder(function(folder) {
        input <- write_data(data, folder)
        factors <- file.path(folder, "factors.npz")
        output <- file.path(folder, "new.npz")
        write_npz(list(V = t(basis), algo = fit$algo, params = fit$params), factors)
        run(c("project", factors, option_words(list(input = input, output = output))),
            stats::setNames(c("newdata", "the factorisation"), c(input, factors)))
        read_npz(output, "U")
    })
    dimnames(coef) <- names
    with_factors(newdata, coef, fit$basis, assay)
}

# The row of new data for each row of a factorisation (NA: none), or NULL if they are the same. `basis`: the old rows.
matched_rows <- function(old, new, counts, basis) {
    if (is.null(old) || is.null(new)) {
        if (counts[1] != counts[2]) {
            stop(sprintf("newdata has %d rows, but the factorisation has %d; without names they must be the same", counts[2],
                counts[1]), call. = FALSE)
        }
        return(NULL)
    }
    if (identical(old, new)) return(NULL)
    for (names in list(old, new)) {
        if (anyDuplicated(names)) {
            stop("several rows have the name ", names[anyDuplicated(names)], ": names must be unique", call. = FALSE)
        }
    }
    found <- match(old, new)
    if (all(is.na(found))) stop("newdata has none of the rows of the factorisation: ", old[1], ", ...", call. = FALSE)
    ignored <- sum(!new %in% old)
    if (anyNA(found)) {
        shares <- colSums(basis[is.na(found), , drop = FALSE]) / pmax(colSums(basis), .Machine$double.xmin)
        warning(sprintf(paste("%d of the %d rows of the factorisation are missing in newdata, and are left out of the fit",
            "(they carry %.1f %% of the weight of component %d, and at most %.1f %% of that of any other); %d of its rows are not in the factorisation, and are ignored"),
            sum(is.na(found)), length(old), 100 * max(shares), which.max(shares),
            100 * max(shares[-which.max(shares)], 0), ignored), call. = FALSE)
    }
    found
}
