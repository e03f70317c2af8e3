"""Runs nmf-rs with its default start; METHOD is a name of its methods, such as hals. See recorder.py.

The matrix is dense and f64: nmf-rs has no others. It has no callbacks either, so each evaluation ends a call; its HALS
keeps nothing but the factors, so that several calls compute what one would.
"""

import contextlib

import nmf_rs
from recorder import EVALUATIONS, Finished, Recorder, arguments, load


def main():
    given = arguments()
    x = load(given, dense=True)
    recorder = Recorder(x, given)
    recorder.start()
    w, h = nmf_rs.random_init(x, given.k, seed=given.seed)
    with contextlib.suppress(Finished):
        while True:
            pace = recorder.seconds / max(recorder.iteration, 1)
            steps = int(given.seconds / EVALUATIONS / pace) if recorder.iteration >= 5 else 1
            steps = min(max(steps, 1), given.iterations - recorder.iteration)
            result = nmf_rs.nmf(x, given.k, given.method, W0=w, H0=h, max_iter=steps, num_threads=given.threads)
            w, h = result.W, result.H
            recorder.record(w, h, steps)


if __name__ == "__main__":
    main()
