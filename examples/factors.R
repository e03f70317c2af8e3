#!/usr/bin/env Rscript
# From a matrix in R to factors and back: factors.R. Needs the packages Matrix and rhdf5 (or hdf5r), and fednmf on the PATH.

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

# HDF5 in R has the dimensions the other way round: U comes as k x m, V as k x n.
W <- t(h5read(factors, "U"))
H <- h5read(factors, "V")
cat("relative error", norm(as.matrix(X) - W %*% H, "F") / norm(X, "F"), "\n")

# Into a SingleCellExperiment whose columns are the rows of X:  reducedDim(sce, "NMF") <- W
