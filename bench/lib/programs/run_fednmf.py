"""Runs fednmf.NMF with its defaults to its own end. See recorder.py; here the seconds contain the evaluations."""

import contextlib
import time
import warnings

from recorder import Finished, Recorder, arguments, load

from fednmf import NMF, _show


def main():
    given = arguments()
    recorder = Recorder(load(given), given)

    def iteration(_, number, measures):
        error = measures["kl_divergence" if given.loss == "kl" else "rel_error"]
        print(number, f"{time.perf_counter() - recorder.since:.6f}", f"{error:.8f}", flush=True)

    _show.Progress.iteration = iteration
    loss = {"frobenius": "frobenius", "kl": "kullback-leibler"}[given.loss]
    model = NMF(given.k, beta_loss=loss, random_state=given.seed, n_jobs=given.threads, verbose=1)
    warnings.simplefilter("ignore")  # it may warn that it has not converged
    recorder.start()
    w = model.fit_transform(recorder.x)
    given.iterations = model.n_iter_
    with contextlib.suppress(Finished):
        recorder.record(w, model.components_, model.n_iter_)


if __name__ == "__main__":
    main()
