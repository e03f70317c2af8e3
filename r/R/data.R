# Sparse matrices are of the package Matrix, which must be loaded for its methods.
#' @importFrom Matrix sparseMatrix
NULL

# Matrices in files for the program, and where objects of single-cell packages keep matrices and factors.

# The matrix of an object.
matrix_of <- function(x, assay = NULL, layer = NULL) {
    if (inherits(x, "SingleCellExperiment")) {
        if (!is.null(layer)) stop("`layer` is for Seurat objects; `assay` names the assay", call. = FALSE)
        if (is.null(assay)) assay <- "logcounts"
        has <- SummarizedExperiment::assayNames(x)
        if (!assay %in% has) {
            stop("there is no assay \"", assay, "\"; `assay` may be: ", paste(has, collapse = ", "), call. = FALSE)
        }
        return(SummarizedExperiment::assay(x, assay))
    }
    if (inherits(x, "Seurat")) {
        arguments <- list(x, assay = assay, if (is.null(layer)) "data" else layer)
        names(arguments)[3] <- if (utils::packageVersion("SeuratObject") < "5") "slot" else "layer"
        return(do.call(SeuratObject::GetAssayData, arguments))
    }
    if (!is.null(assay) || !is.null(layer)) {
        stop("`assay` and `layer` are for SingleCellExperiment and Seurat objects", call. = FALSE)
    }
    x
}

# Stores the columns of `coef`, one for each cell of `object`, and with `fit` the whole factorisation; returns a matrix as it is.
with_factors <- function(object, coef, basis, assay, fit = NULL) {
    if (inherits(object, "SingleCellExperiment")) {
        SingleCellExperiment::reducedDim(object, "NMF") <- t(coef)
        if (!is.null(fit)) S4Vectors::metadata(object)$nmf <- fit
        return(object)
    }
    if (inherits(object, "Seurat")) {
        if (is.null(assay)) assay <- SeuratObject::DefaultAssay(object)
        object[["nmf"]] <- SeuratObject::CreateDimReducObject(
            embeddings = t(coef), loadings = basis, key = "NMF_", assay = assay, misc = list(fit = fit))
        return(object)
    }
    if (is.null(fit)) coef else fit
}

# The result of nmf(), also if an object holds it.
fit_of <- function(object) {
    fit <- if (inherits(object, "fednmf")) object
        else if (inherits(object, "SingleCellExperiment")) S4Vectors::metadata(object)$nmf
        else if (inherits(object, "Seurat") && "nmf" %in% SeuratObject::Reductions(object)) {
            SeuratObject::Misc(object[["nmf"]], slot = "fit")
        }
    if (is.null(fit)) stop("no factors found: `object` must be a result of nmf()", call. = FALSE)
    fit
}

# The matrix of an object as it is passed to the program. Negative entries are refused, and missing ones unless `missing` is given.
prepared <- function(x, missing, assay, layer) {
    x <- stored(matrix_of(x, assay, layer))
    entries <- if (is.matrix(x)) x else x@x
    at <- NA
    if (is.null(missing) && anyNA(entries)) at <- which(is.na(entries))[1]
    else if (min(entries, 0, na.rm = TRUE) < 0) at <- which(entries < 0)[1]
    else if (max(entries, 0, na.rm = TRUE) == Inf) at <- which(entries == Inf)[1]
    if (!is.na(at)) {
        place <- if (is.matrix(x)) arrayInd(at, dim(x)) else c(x@i[at] + 1, findInterval(at - 1, x@p))
        stop(sprintf("the entry in row %d, column %d is %s; ", place[1], place[2], format(entries[at])),
            if (is.na(entries[at])) "if that marks a missing value, missing = \"nan\" leaves it out"
            else if (entries[at] == Inf) "entries must be finite numbers"
            else "the factorisation requires a nonnegative matrix", call. = FALSE)
    }
    x
}

# A matrix of doubles: an ordinary one, or compressed by columns.
stored <- function(x) {
    if (methods::is(x, "sparseMatrix")) {
        return(methods::as(methods::as(methods::as(x, "dMatrix"), "generalMatrix"), "CsparseMatrix"))
    }
    if (methods::is(x, "Matrix")) x <- as.matrix(x)
    if (!is.matrix(x) || !(is.numeric(x) || is.logical(x))) {
        stop("a matrix of numbers is needed, not an object of class ", class(x)[1], "; try as.matrix(x), or ",
            "as(x, \"CsparseMatrix\") if most entries are zero", call. = FALSE)
    }
    storage.mode(x) <- "double"
    x
}

# Writes the transpose of a prepared matrix, whose rows are then the columns of `x` (cells), and returns the path.
write_data <- function(x, folder) {
    if (is.matrix(x)) {
        path <- file.path(folder, "x.npy")
        to <- file(path, "wb")
        on.exit(close(to))
        write_npy(x, to)
    } else {
        path <- file.path(folder, "x.npz")
        write_npz(list(format = "csr", shape = rev(dim(x)), indptr = x@p, indices = x@i, data = x@x), path)
    }
    path
}
