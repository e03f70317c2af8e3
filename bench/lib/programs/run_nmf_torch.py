"""Runs nmf-torch in batch mode on the CPU with its default start; METHOD is its algo, halsvar, hals or mu. See recorder.py.

The matrix is dense: nmf-torch has no sparse ones.
"""

import contextlib
import os
import sys
import types

from recorder import Finished, Recorder, arguments, load

try:
    import nmf.cylib.nnls_bpp_utils  # noqa: F401
except ImportError:  # compiled code that only its BPP needs
    sys.modules["nmf.cylib"] = types.ModuleType("nmf.cylib")
    stub = sys.modules["nmf.cylib.nnls_bpp_utils"] = types.ModuleType("nmf.cylib.nnls_bpp_utils")
    stub._nnls_bpp = None

import torch
from nmf.nmf_models import NMFBatchHALS, NMFBatchMU


def main():
    given = arguments()
    x = load(given, dense=True)
    recorder = Recorder(x, given)

    multiplicative = given.method == "mu"

    class Recorded(NMFBatchMU if multiplicative else NMFBatchHALS):
        def _update_W(self):
            super()._update_W()
            with contextlib.redirect_stdout(sys.__stdout__):
                recorder.record(self.H.numpy(), self.W.numpy())

    model = Recorded(
        given.k,
        init="nndsvdar",
        beta_loss={"frobenius": 2.0, "kl": 1.0}[given.loss],
        tol=0.0,
        random_state=given.seed,
        alpha_W=0.0,
        l1_ratio_W=0.0,
        alpha_H=0.0,
        l1_ratio_H=0.0,
        fp_precision={"f32": "float", "f64": "double"}[given.precision],
        device_type="cpu",
        n_jobs=given.threads,
        max_iter=given.iterations,
        **({} if multiplicative else {"hals_max_iter": 1 if given.method == "hals" else 200}),
    )
    matrix = torch.from_numpy(x)
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
        recorder.start()
        with contextlib.suppress(Finished):
            model.fit(matrix)


if __name__ == "__main__":
    main()
