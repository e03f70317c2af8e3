#' @details [nmf()] factorises, [choose_k()] compares numbers of components, [project()] uses the components for new data.
#'   `vignette("fednmf")` shows them. The package starts the program `fednmf`, see [available()].
#' @keywords internal
"_PACKAGE"
