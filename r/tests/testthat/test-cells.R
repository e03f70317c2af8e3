counts_of_cells <- function() {
    set.seed(1)
    x <- matrix(rpois(40 * 30, 2), 40, dimnames = list(paste0("gene", 1:40), paste0("cell", 1:30)))
    methods::as(x, "CsparseMatrix")
}

test_that("SingleCellExperiment gets a reduced dimension", {
    skip_without_program()
    skip_if_not_installed("SingleCellExperiment")
    x <- counts_of_cells()
    cells <- SingleCellExperiment::SingleCellExperiment(assays = list(counts = x, logcounts = log1p(x)))
    expect_error(nmf(cells, 3, assay = "tpm"), "counts, logcounts")
    expect_error(nmf(cells, 3, layer = "data"), "Seurat")
    expect_error(basis(cells), "result of nmf")
    found <- nmf(cells, 3, quiet = TRUE)
    fit <- nmf(log1p(x), 3, quiet = TRUE)
    expect_identical(SingleCellExperiment::reducedDim(found, "NMF"), t(coef(fit)))
    expect_identical(basis(found), basis(fit))
    expect_identical(basis(nmf(cells, 3, assay = "counts", quiet = TRUE)), basis(nmf(x, 3, quiet = TRUE)))
    new <- project(found, cells[40:1, 5:1])
    expect_equal(SingleCellExperiment::reducedDim(new, "NMF"), t(project(fit, log1p(x)[, 5:1])), tolerance = 1e-6)
    expect_s3_class(choose_k(cells, 2, runs = 2, quiet = TRUE), "fednmf_choice")
})

test_that("Seurat objects get a reduction", {
    skip_without_program()
    skip_if_not_installed("SeuratObject")
    x <- counts_of_cells()
    cells <- SeuratObject::CreateSeuratObject(counts = x)
    expect_error(basis(cells), "result of nmf")
    found <- nmf(cells, 3, layer = "counts", quiet = TRUE)
    fit <- nmf(x, 3, quiet = TRUE)
    expect_identical(SeuratObject::Embeddings(found, "nmf"), t(coef(fit)))
    expect_identical(SeuratObject::Loadings(found, "nmf"), basis(fit))
    new <- project(found, cells[, 5:1], layer = "counts")
    expect_equal(SeuratObject::Embeddings(new, "nmf"), t(project(fit, x[, colnames(new)])), tolerance = 1e-6)
    # Factors of another matrix serve as well.
    expect_equal(SeuratObject::Embeddings(project(fit, cells, layer = "counts"), "nmf"), t(coef(fit)), tolerance = 0.05)
})
