#!/usr/bin/env Rscript
# Factorises a sparse matrix from R and reads the factors back.
# Needs the packages Matrix and rhdf5, and fednmf on the PATH.

library(Matrix)
library(rhdf5)

set.seed(1)
X <- rsparsematrix(200, 80, density = 0.1, rand.x = function(n) rexp(n))
folder <- tempfile("fednmf")
dir.create(folder)
data <- file.path(folder, "x.mtx")
factors <- file.path(folder, "factors.h5")
writeMM(X, data)

status <- system2("fednmf", c("--input", data, "-k", 5, "--max-iters", 200, "--output", factors, "--quiet"))
stopifnot(status == 0)

# R reverses the dimensions of HDF5 datasets: U is read as k x m, V as k x n.
W <- t(h5read(factors, "U"))
H <- h5read(factors, "V")
cat("relative error", norm(as.matrix(X) - W %*% H, "F") / norm(X, "F"), "\n")

# For a SingleCellExperiment whose columns are the rows of X:  reducedDim(sce, "NMF") <- W
