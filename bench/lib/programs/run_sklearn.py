"""Runs scikit-learn's NMF with its default start; METHOD is its solver, cd or mu. See recorder.py."""

import warnings

from recorder import Finished, Recorder, arguments, load
from sklearn.decomposition import NMF, _nmf


def main():
    given = arguments()
    recorder = Recorder(load(given), given)
    # Wraps the functions that update a factor: scikit-learn has no callbacks.
    if given.method == "cd":
        update, calls = _nmf._update_coordinate_descent, [0]

        def update_factor(matrix, factor, other, *rest, **named):
            result = update(matrix, factor, other, *rest, **named)
            calls[0] += 1
            if calls[0] % 2 == 0:  # the second call of an iteration has the transposed matrix
                recorder.record(other, factor.T)
            return result

        _nmf._update_coordinate_descent = update_factor
    else:
        multiply_h = _nmf._multiplicative_update_h

        def update_h(matrix, w, *rest, **named):
            h = multiply_h(matrix, w, *rest, **named)
            recorder.record(w, h)
            return h

        _nmf._multiplicative_update_h = update_h
    warnings.simplefilter("ignore")  # it warns that it has not converged
    losses = {"frobenius": "frobenius", "kl": "kullback-leibler"}
    settings = {"solver": given.method, "beta_loss": losses[given.loss], "tol": 0, "random_state": given.seed}
    model = NMF(given.k, max_iter=given.iterations + 1, **settings)
    recorder.start()
    try:
        model.fit(recorder.x)
    except Finished:
        pass


if __name__ == "__main__":
    main()
