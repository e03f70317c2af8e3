# From a matrix in R to factors and back: Rscript factors.R. Needs rhdf5 (Bioconductor), and fednmf on the PATH.
library(rhdf5)

set.seed(1)
X <- matrix(runif(200 * 5), 200) %*% matrix(runif(5 * 80), 5)
write.table(X, "x.csv", sep = ",", row.names = FALSE, col.names = FALSE)
stopifnot(system2("fednmf", c("--input", "x.csv", "-k", "5", "--max-iters", "500", "--output", "factors.h5", "--quiet")) == 0)
# HDF5 in R has the dimensions the other way round.
U <- t(h5read("factors.h5", "U"))
V <- t(h5read("factors.h5", "V"))
cat("relative error", norm(X - U %*% t(V), "F") / norm(X, "F"), "\n")
