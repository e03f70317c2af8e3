library(testthat)
library(fednmf)

test_check("fednmf")
