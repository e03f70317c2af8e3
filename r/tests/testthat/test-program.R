test_that("a missing program is named, with what to do", {
    old <- options(fednmf.program = "/nowhere/fednmf")
    on.exit(options(old))
    expect_false(available())
    expect_error(nmf(diag(3), 2), "/nowhere/fednmf.*install.*options\\(fednmf.program.*FEDNMF")
})

test_that("the option comes before the variable, and that before the PATH", {
    old <- options(fednmf.program = NULL)
    variable <- Sys.getenv("FEDNMF", NA)
    on.exit({
        options(old)
        if (is.na(variable)) Sys.unsetenv("FEDNMF") else Sys.setenv(FEDNMF = variable)
    })
    Sys.unsetenv("FEDNMF")
    expect_identical(program(), "fednmf")
    Sys.setenv(FEDNMF = "/there/fednmf")
    expect_identical(program(), "/there/fednmf")
    options(fednmf.program = c("mpirun", "fednmf"))
    expect_identical(program(), c("mpirun", "fednmf"))
})

test_that("messages, warnings and errors of the program are those of R", {
    skip_without_program()
    expect_message(nmf(matrix(runif(60), 10), 2, max_iters = 10), "iteration 10/10")
    expect_message(choose_k(matrix(runif(60), 10), 2, runs = 2), "run 1/2")
    expect_error(nmf(matrix(runif(60), 10), 7), "at most 6 components")
    expect_error(nmf(matrix(runif(60), 10), 2, max_iter = 7), "--max-iter")
    expect_error(nmf(matrix(0, 4, 4), 2), "all entries of the matrix are zero")
    expect_error(nmf(matrix(Inf, 4, 4), 2), "row 1, column 1 is Inf; entries must be finite")
    with_script(c("echo 'note: begun' >&2", "echo 'warning: first' >&2", "echo 'error: /x/y' >&2", "echo 'usage' >&2", "exit 2"), {
        expect_warning(expect_message(expect_error(run("a", c("/x/y" = "data")), "^data$"), "note: begun"), "^first$")
    })
    with_script(c("echo 'killed by signal' >&2", "exit 9"), {
        suppressMessages(expect_error(run("a"), "ended with code 9\nkilled by signal"))
    })
    # Arguments arrive as they are.
    with_script("echo \"error: $2\" >&2; exit 1", expect_error(run(c("a", "it's $HOME `x` *")), "it's $HOME `x` *", fixed = TRUE))
})

test_that("an interrupt ends the program", {
    skip_without_program()
    process <- tempfile()
    binary <- Sys.which(utils::tail(program(), 1))
    with_script(sprintf("echo $$ >%s; exec %s \"$@\"", shQuote(process), shQuote(binary)), {
        system(sprintf("{ while [ ! -s %s ]; do sleep 0.1; done; sleep 1; kill -INT %d; }", shQuote(process), Sys.getpid()),
            wait = FALSE)
        x <- matrix(runif(1e6), 1000)
        found <- tryCatch(nmf(x, 20, max_iters = 1e8, eval_every = 0, quiet = TRUE), interrupt = function(e) "interrupted")
        expect_identical(found, "interrupted")
    })
    expect_false(tools::pskill(scan(process, integer(), quiet = TRUE), 0))
})

test_that("options become words", {
    expect_identical(option_words(list(max_iters = 1e6, tol = 1e-7, clamp = TRUE, resume = FALSE, init = NULL, k = c(2, 10))),
        c("--max-iters=1000000", "--tol=0.0000001", "--clamp", "--k=2,10"))
    expect_error(option_words(list(5)), "must have names")
    expect_error(nmf(diag(3), 2, output = "f.h5"), "`output` is not accepted")
    expect_error(nmf(diag(3), "two"), "single number")
})

test_that("what is no nonnegative matrix is refused with its place", {
    x <- matrix(1, 3, 4)
    x[2, 3] <- -1
    expect_error(nmf(x, 2), "row 2, column 3 is -1; .* nonnegative")
    expect_error(nmf(methods::as(x - 1, "CsparseMatrix"), 2), "row 2, column 3 is -2")
    x[2, 3] <- Inf
    expect_error(nmf(x, 2), "row 2, column 3 is Inf; .*finite")
    x[2, 3] <- NA
    expect_error(nmf(x, 2), "row 2, column 3 is NA; .*missing = \"nan\"")
    expect_error(nmf(as.data.frame(x), 2), "class data.frame")
    expect_error(nmf(matrix("a"), 2), "class matrix")
    expect_error(nmf(diag(3), 2, assay = "counts"), "SingleCellExperiment")
})
