"""The licences that the metadata of the installed wheel name."""

from importlib import metadata

import pytest


def test_the_licence_is_that_of_what_the_wheel_contains():
    package = metadata.distribution("fednmf")
    texts = [path for path in package.files if path.name == "LICENSE-THIRD-PARTY"]
    if not texts:
        pytest.skip("not installed from a wheel of `make python`")
    texts, licence = package.locate_file(texts[0]).read_text(), package.metadata["License-Expression"]
    libraries = {path.name.split("-")[0].split(".")[0] for path in package.files if path.parts[0] == "fednmf.libs"}
    assert licence.startswith("(MIT OR Apache-2.0) AND LGPL-3.0-or-later AND ")
    for name, text, contained in [
        ("LicenseRef-Intel-Simplified", "Intel Simplified Software License", "libopenblas" not in libraries),
        ("BSD-3-Clause-Open-MPI", "The OpenBLAS Project", "libopenblas" in libraries),
        ("GPL-3.0-or-later WITH GCC-exception-3.1", "GCC Runtime Library Exception", "libgfortran" in libraries),
    ]:
        assert (name in licence) == (text.lower() in texts.lower()) == contained, (name, licence, libraries)
