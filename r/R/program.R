#' The program
#'
#' The package starts the program `fednmf`, which it looks for in this order: `options(fednmf.program = )`, the environment
#' variable `FEDNMF`, the `PATH`. The option may be a vector of words, such as `c("mpirun", "-n", "4", "fednmf")` for four MPI
#' ranks. These read temporary files of R, so that ranks on other machines need a `TMPDIR` that all of them see.
#'
#' The program's progress and notes are messages of R, its warnings are warnings, and its errors are errors. They name options
#' as the command line does: `--max-iters` is `max_iters`. An interrupt (Ctrl-C) ends the program.
#'
#' @return `available()` is `TRUE` if the program is found.
#' @examples
#' available()
#' @export
available <- function() all(nzchar(Sys.which(program()[c(1, length(program()))])))

# The command that starts the program, as words.
program <- function() {
    words <- getOption("fednmf.program", Sys.getenv("FEDNMF"))
    if (nzchar(words[1])) words else "fednmf"
}

# Runs the program to its end. `labels` has what messages say in place of the paths of temporary files, which are its names.
run <- function(arguments, labels = NULL) {
    words <- program()
    if (!available()) {
        stop("the program ", sQuote(paste(words, collapse = " "), FALSE), " is not found: install it (make install in the ",
            "source tree of fednmf), or name it with options(fednmf.program = \"/path/to/fednmf\") or the environment variable ",
            "FEDNMF", call. = FALSE)
    }
    folder <- tempfile("run")
    dir.create(folder)
    files <- file.path(folder, c("output", "log", "process", "status"))
    # In the background, where R waits for it and can be interrupted.
    system(sprintf("{ %s >%s 2>%s & echo $! >%s; wait $!; echo $? >%s; }",
        paste(shQuote(c(words, arguments)), collapse = " "),
        shQuote(files[1]), shQuote(files[2]), shQuote(files[3]), shQuote(files[4])), wait = FALSE)
    number <- function(path) if (file.exists(path)) scan(path, integer(), quiet = TRUE) else integer()
    status <- integer()
    on.exit({
        if (length(status) == 0) end_process(function() number(files[3]), function() length(number(files[4])) > 0)
        unlink(folder, recursive = TRUE)
    })
    shown <- 0
    errors <- character()
    repeat {
        # The status first, so that the log is complete once it is there.
        status <- number(files[4])
        log <- complete_lines(files[2])
        for (line in log[seq_along(log) > shown]) {
            for (path in names(labels)) line <- gsub(path, labels[[path]], line, fixed = TRUE)
            if (startsWith(line, "error: ")) errors <- c(errors, substring(line, 8))
            else if (startsWith(line, "warning: ")) warning(substring(line, 10), call. = FALSE)
            else if (length(errors) == 0) message(line)
        }
        shown <- length(log)
        if (length(status) > 0) break
        Sys.sleep(0.05)
    }
    # The exit code of a run that a later one can continue.
    if (status == 75) stop("stopped early, with a checkpoint: repeat the call with resume = TRUE to continue", call. = FALSE)
    if (status != 0) {
        # Several ranks may say the same.
        if (length(errors) == 0) errors <- c(sprintf("%s ended with code %d", words[1], status), utils::tail(log, 5))
        stop(paste(unique(errors), collapse = "\n"), call. = FALSE)
    }
}

# The lines of a file that is being written, without the last one if its end is missing.
complete_lines <- function(path) {
    if (!file.exists(path)) return(character())
    text <- readChar(path, file.size(path), useBytes = TRUE)
    Encoding(text) <- "UTF-8"
    lines <- strsplit(paste0(text, "."), "\n", fixed = TRUE)[[1]]
    utils::head(lines, -1)
}

# Asks the program to end, and kills it if it does not within five seconds; returns once it has ended, since its folder is then removed.
end_process <- function(process, has_ended) {
    asked <- FALSE
    for (try in 1:200) {
        if (has_ended()) return(invisible())
        if (!asked && length(process()) > 0) asked <- tools::pskill(process())
        if (try == 100) tools::pskill(process(), tools::SIGKILL)
        Sys.sleep(0.05)
    }
}

# Options of the program, from a list: max_iters = 10 is --max-iters=10, resume = TRUE is --resume.
option_words <- function(options, refused = character()) {
    if (length(options) > 0 && (is.null(names(options)) || !all(nzchar(names(options))))) {
        stop("arguments in ... must have names, which are those of options of the program: max_iters = 50", call. = FALSE)
    }
    taken <- intersect(names(options), refused)
    if (length(taken) > 0) {
        stop("`", taken[1], "` is not accepted here: the matrix is passed as it is, and the result is returned", call. = FALSE)
    }
    text <- function(value) if (is.numeric(value)) format(value, digits = 15, scientific = FALSE) else as.character(value)
    unlist(Map(function(name, value) {
        flag <- paste0("--", gsub("_", "-", name))
        if (isTRUE(value)) flag
        else if (!is.null(value) && !isFALSE(value)) paste0(flag, "=", paste(vapply(value, text, ""), collapse = ","))
    }, names(options), options), use.names = FALSE)
}
