"""Runs torchnmf's NMF with its default start, by multiplicative updates. See recorder.py."""

import contextlib

import numpy as np
import scipy.sparse as sp
import torch
from recorder import Finished, Recorder, arguments, load
from torchnmf import nmf


def main():
    given = arguments()
    x = load(given)
    recorder, calls = Recorder(x, given), [0]
    torch.manual_seed(given.seed)
    torch.set_num_threads(given.threads)
    torch.set_default_dtype(torch.float32 if given.precision == "f32" else torch.float64)
    if sp.issparse(x):
        places = torch.from_numpy(np.array(x.nonzero()))
        matrix = torch.sparse_coo_tensor(places, torch.from_numpy(x.data), x.shape).coalesce()
    else:
        matrix = torch.from_numpy(x)
    # Wraps the function that updates a factor: torchnmf has no callbacks.
    name = "_sp_double_backward_update" if sp.issparse(x) else "_double_backward_update"
    update = getattr(nmf, name)

    def update_factor(*words):
        update(*words)
        calls[0] += 1
        if calls[0] % 2 == 0:
            recorder.record(model.H.detach().numpy(), model.W.detach().numpy().T)

    setattr(nmf, name, update_factor)
    recorder.start()
    model = nmf.NMF(x.shape, rank=given.k)
    with contextlib.suppress(Finished):
        beta = {"frobenius": 2, "kl": 1}[given.loss]
        model.fit(matrix, beta=beta, tol=0, max_iter=given.iterations + 1)


if __name__ == "__main__":
    main()
