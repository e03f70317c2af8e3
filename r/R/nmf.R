#' Nonnegative matrix factorisation
#'
#' Factorises a nonnegative matrix `x` into `basis` (rows of `x` times `k`) and `coef` (`k` times columns of `x`), both
#' nonnegative, so that their product is near `x`. In R's matrices of single-cell data, genes times cells, `basis` has the weights
#' of the genes in each component (gene program), and `coef` the use of each component by each cell.
#'
#' @param x A matrix of numbers, a sparse matrix of the package Matrix (such as a `dgCMatrix`), a `SingleCellExperiment` or a
#'   `Seurat` object. Without negative entries: counts or log counts, not scaled data. For certain genes only, pass these:
#'   `nmf(sce[genes, ], 10)`.
#' @param k Number of components.
#' @param ... Options of the program, with underscores instead of hyphens, for example
#'   * `loss = "kullback-leibler"` (for counts),
#'   * `max_iters = 500`, `tol = 1e-6`, `time_limit = "10m"`: when to stop,
#'   * `seed = 1`: R's own seed has no effect,
#'   * `threads = 4`, `precision = "f32"`,
#'   * `alpha_u`, `alpha_v`, `l1_ratio`: penalties on `coef` (`alpha_u`) and `basis` (`alpha_v`),
#'   * `missing = "nan"`: `NA` is a missing entry,
#'   * `algo = "bpp"`: the method,
#'   * `quiet = TRUE`: no progress.
#'
#'   `fednmf --help` in a terminal lists all of them. The program receives the transpose of `x`: its U is `t(coef)`, its V `basis`.
#' @param assay For a `SingleCellExperiment` the name of the assay (default: `"logcounts"`), for a `Seurat` object that of
#'   the assay (default: the default assay).
#' @param layer For a `Seurat` object the layer (slot) to factorise (default: `"data"`).
#' @return For a matrix an object of class `fednmf`, see [basis()]: a list of
#'   * `basis`, `coef`: the factors, with the names of rows and columns of `x`. Unless penalties are given, the columns of `basis`
#'     have norm 1. Components are sorted by weight, the largest first.
#'   * `rel_error`: the Frobenius norm of `x - basis %*% coef`, divided by that of `x`,
#'   * `iterations`, `seconds`, `stopped_by`,
#'   * `algo`, `params`: the method, and all parameters in JSON.
#'
#'   For a `SingleCellExperiment` the same with `t(coef)` in `reducedDim(x, "NMF")` and the list in `metadata(x)$nmf`; for a
#'   `Seurat` object with the reduction `nmf`, whose loadings are `basis`.
#' @seealso [project()] for new columns, [choose_k()] for the number of components, [available()] for where the program is found.
#' @examplesIf fednmf::available()
#' x <- Matrix::rsparsematrix(200, 80, density = 0.1, rand.x = function(n) rexp(n))
#' fit <- nmf(x, 5, max_iters = 50, quiet = TRUE)
#' fit
#' dim(basis(fit))
#' dim(coef(fit))
#' Matrix::norm(x - fitted(fit), "F") / Matrix::norm(x, "F")
#' @export
nmf <- function(x, k, ..., assay = NULL, layer = NULL) {
    options <- list(...)
    data <- prepared(x, options$missing, assay, layer)
    words <- option_words(options, not_accepted)
    if (!is.numeric(k) || length(k) != 1) stop("`k` must be a single number", call. = FALSE)
    fit <- in_folder(function(folder) {
        input <- write_data(data, folder)
        output <- file.path(folder, "factors.npz")
        run(c(option_words(list(input = input, components = k, output = output)), words), stats::setNames("x", input))
        read_fit(output, dimnames(data))
    })
    with_factors(x, fit$coef, fit$basis, assay, fit)
}

# Options that would change what the factors are of, or where they go.
not_accepted <- c("input", "output", "components", "k", "transpose", "scale", "binarize", "factors", "add_to", "json")

# Calls `what` with a temporary folder.
in_folder <- function(what) {
    folder <- tempfile("fednmf")
    dir.create(folder)
    on.exit(unlink(folder, recursive = TRUE))
    what(folder)
}

# The factors in a file of the program, whose matrix was the transpose of one with these names.
read_fit <- function(path, names) {
    has <- sub("\\.npy$", "", utils::unzip(path, list = TRUE)$Name)
    if (!all(c("U", "V") %in% has)) {
        stop("this method keeps the factors of each party in a file of its own: use the program `fednmf` for it", call. = FALSE)
    }
    basis <- t(read_npz(path, "V"))
    coef <- read_npz(path, "U")
    components <- paste0("NMF_", seq_len(nrow(coef)))
    dimnames(basis) <- list(names[[1]], components)
    dimnames(coef) <- list(components, names[[2]])
    about <- c("rel_error", "iterations", "seconds", "stopped_by", "algo", "params")
    about <- sapply(intersect(about, has), read_npz, path = path, simplify = FALSE)
    structure(c(list(basis = basis, coef = coef), about), class = "fednmf")
}

#' Factors of a factorisation
#'
#' `basis` and `coef` are the factors of [nmf()], `fitted` is their product, and `predict` the `coef` of new columns, as
#' [project()] finds them. For a Boolean method, such as `algo = "asso"`, the fit is where the product is at least 1.
#'
#' @param object,x A result of [nmf()]; for `basis` also a `SingleCellExperiment` or `Seurat` object that [nmf()] returned.
#' @param newdata As in [project()]; without it `predict` is the same as `coef`.
#' @param ... Not used.
#' @return A matrix: `basis` has the rows of the factorised matrix and a column for each component, `coef` a row for each component
#'   and the columns of the matrix.
#' @examplesIf fednmf::available()
#' x <- matrix(runif(600), 30)
#' fit <- nmf(x[, 1:15], 3, quiet = TRUE)
#' max(abs(fitted(fit) - basis(fit) %*% coef(fit)))
#' predict(fit, x[, 16:20])
#' @export
basis <- function(object) fit_of(object)$basis

#' @rdname basis
#' @importFrom stats coef
#' @export
coef.fednmf <- function(object, ...) object$coef

#' @rdname basis
#' @importFrom stats fitted
#' @export
fitted.fednmf <- function(object, ...) object$basis %*% object$coef

#' @rdname basis
#' @importFrom stats predict
#' @export
predict.fednmf <- function(object, newdata, ...) {
    if (missing(newdata)) object$coef else project(object, newdata)
}

#' @rdname basis
#' @export
print.fednmf <- function(x, ...) {
    about <- c(
        if (!is.null(x$rel_error)) sprintf("relative error %.4g", x$rel_error),
        if (!is.null(x$iterations)) {
            sprintf("%s, %d iterations in %.3g s, stopped by %s", x$algo, x$iterations, x$seconds, x$stopped_by)
        })
    cat(sprintf("Nonnegative factorisation of a %d x %d matrix, k = %d\n", nrow(x$basis), ncol(x$coef), ncol(x$basis)),
        paste(about, collapse = ", "), "\n$basis, $coef: the factors\n", sep = "")
    invisible(x)
}
