# The commands for developers; 'make' lists them. Python packages are installed only into the venv of the repository.
PYTHON ?= python3
VENV ?= .venv
EXAMPLE := examples/hosts/debian13-8xh100.json

.DEFAULT_GOAL := help
.PHONY: help run test test-processes test-containers test-debian13 quick nightly test-newest test-oldest timings coverage lint format generated lock bench bench-start bench-daemon bench-validate bench-nri bench-kubelet bench-topology bench-extender bench-page pictures soak provision real-gpu install install-files install-documentation uninstall install-hook deb rpm image release clean

help: ## list the targets
	@sed -n 's/^\([a-z][a-z0-9-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

run: $(VENV)/run.stamp ## install into a private venv, then print the CDI spec of this host
	@$(VENV)/bin/cdigen generate --output-dir build/specs; code=$$?; \
	if [ $$code -eq 3 ]; then \
	  echo "This host has no usable GPU. The spec of the example host $(EXAMPLE):" >&2; \
	  $(VENV)/bin/cdigen generate --inventory $(EXAMPLE); \
	elif [ $$code -eq 0 ]; then cat build/specs/*.json; else exit $$code; fi

# With this variable each process of a test would compile all of cdigen, and each worker all tests.
unexport PYTHONDONTWRITEBYTECODE

# The number of test modules that run in parallel. Tests with containers mostly wait for runtimes and disks, other tests
# mostly use the CPU.
CPUS := $(shell nproc)
JOBS ?= $(shell echo $$((2 * $(CPUS))))
CONTAINER_JOBS ?= $(shell echo $$(($(CPUS) + 1)))
# A selection of tests by their markers, like pytest's option -m; for example 'not needs_root'.
SELECT ?=
MARKERS = -m 'not wall_clock$(if $(SELECT), and ($(SELECT)))'
# The time limit of a test with its fixtures, in s: more than twice the time of the longest test. A test that hangs
# fails, with its stack.
TIMEOUT_S := 600

# The second half runs even if the first one failed.
test: ## run every test that this machine can run (JOBS modules at a time)
	@code=0; for half in test-processes test-containers; do \
	  $(MAKE) --no-print-directory $$half || code=$$?; \
	done; exit $$code

test-processes: $(VENV)/dev.stamp ## run the tests that start no containers (SELECT='not needs_root')
	$(VENV)/bin/python -m pytest $(MARKERS) --timeout $(TIMEOUT_S) -n $(JOBS) --dist loadfile --ignore tests/e2e

test-containers: $(VENV)/dev.stamp ## run the tests of real runtimes and Kubernetes (root, after 'make provision')
	$(VENV)/bin/python -m pytest $(MARKERS) --timeout $(TIMEOUT_S) -n $(CONTAINER_JOBS) --dist loadfile tests/e2e

# Tests of Python itself, of code that watches files, and of the hook. They run in addition to the tests of code whose
# libraries differ on Debian 13.
DEBIAN13 := $(addprefix tests/,cli daemon/test_loop.py hook nvml watch)
test-debian13: ## run the tests whose result may differ on Debian 13's own Python (root, after 'make provision')
	tests/on-debian13 --differing -n $(JOBS) --dist loadfile -m 'not adversarial and not wall_clock' $(DEBIAN13)

nightly: ## run the long tests in the parts of tests/nightly, which can be resumed (root, after 'make provision')
	tests/nightly

# A venv with the newest releases. Its stamps are newer than the lock files, so 'make test' installs nothing into it.
NEWEST := build/venv-newest
test-newest: ## run every test with the newest releases instead of those of requirements-dev.lock
	$(MAKE) VENV=$(NEWEST) $(NEWEST)/bin/pip
	$(NEWEST)/bin/pip install --quiet --disable-pip-version-check --upgrade --upgrade-strategy eager pip --editable '.[dev]'
	@touch $(NEWEST)/run.stamp $(NEWEST)/dev.stamp
	@$(NEWEST)/bin/python tests/compare_lock.py
	$(MAKE) VENV=$(NEWEST) test

# A venv with the tools of requirements-dev.lock, and with the minimum versions of pyproject.toml. No release of grpcio
# before 1.49 has a wheel for Python 3.11.
OLDEST := build/venv-oldest
OLDEST_TESTS := $(addprefix tests/,cdi cli config nri nvml runtimes service watch)
test-oldest: ## run tests of the code that uses other modules, with their minimum versions
	$(MAKE) VENV=$(OLDEST) $(OLDEST)/dev.stamp
	sed -n '/^dependencies = /,/^]/s/^  "\(.*\)>=\([0-9.]*\).*/\1==\2/p' pyproject.toml >$(OLDEST)/floors.txt
	$(OLDEST)/bin/pip install --quiet --disable-pip-version-check --requirement $(OLDEST)/floors.txt grpcio==1.49.1
	@$(OLDEST)/bin/python tests/compare_lock.py
	for tests in "$(OLDEST_TESTS)" tests/kubelet; do \
	  HYPOTHESIS_PROFILE=default $(OLDEST)/bin/python -m pytest -q --timeout $(TIMEOUT_S) -n $(JOBS) --dist loadfile \
	    -m 'not adversarial and not wall_clock' $$tests || exit; \
	done

# Tests without processes and without hostile input, for every change: less than a minute on two cores.
QUICK := $(addprefix tests/,binfmt cdi config model nri/decision nri/wire pipeline runtimes vendors docs) tests/test_documentation.py
quick: $(VENV)/dev.stamp ## run the tests without processes, in less than a minute
	HYPOTHESIS_PROFILE=quick $(VENV)/bin/python -m pytest -q -n $(JOBS) --dist loadfile -m 'not adversarial and not process and not wall_clock' $(QUICK)

timings: $(VENV)/dev.stamp ## run the tests of durations (on an idle machine)
	$(VENV)/bin/python -m pytest -m wall_clock

coverage: $(VENV)/dev.stamp ## measure the coverage of the tests and of the commands that they start, the lowest first
	rm -rf build/coverage* && mkdir -p build
	-$(VENV)/bin/coverage run -m pytest -q --timeout $(TIMEOUT_S) -n $(JOBS) --dist loadfile --ignore tests/e2e
	$(VENV)/bin/coverage combine --quiet
	$(VENV)/bin/coverage report --sort=cover --skip-covered

lint: $(VENV)/dev.stamp ## run ruff, mypy --strict and the import contracts
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

format: $(VENV)/dev.stamp ## format the code with ruff
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

PROTOS := cdigen/nri/wire/nri cdigen/kubelet/wire/deviceplugin cdigen/kubelet/wire/podresources
generated: $(VENV)/dev.stamp ## regenerate man pages, completions, reference pages, and protobuf descriptors
	$(VENV)/bin/python etc/help
	for proto in $(PROTOS); do \
	  $(VENV)/bin/python -m grpc_tools.protoc -I$$(dirname $$proto) --descriptor_set_out=$$proto.binpb $$proto.proto || exit; \
	done

# uv resolves for every Python and machine at once, and writes no address of a registry. Source archives are never
# built, except that of argparse-manpage, which has no wheel. The other locks have the releases of requirements-dev.lock.
UV_LOCK = $(VENV)/bin/uv pip compile --quiet --no-config --upgrade --universal --python-version 3.11 --generate-hashes \
  --only-binary :all: --no-binary argparse-manpage --no-annotate --no-emit-index-url --custom-compile-command 'make lock'
lock: $(VENV)/release.stamp ## write requirements*.lock with the newest releases and their hashes
	$(UV_LOCK) --extra kubelet --extra dev --group build --group hosts --output-file requirements-dev.lock pyproject.toml
	$(UV_LOCK) --constraints requirements-dev.lock --extra kubelet --output-file requirements.lock pyproject.toml
	$(UV_LOCK) --constraints requirements-dev.lock --group build --output-file requirements-build.lock
	$(UV_LOCK) --constraints requirements-dev.lock --group build --group release --output-file requirements-release.lock

# The folder of NVIDIA's toolkit, for 'make bench' and 'make bench-start'; by default, the toolkit in PATH.
TOOLKIT ?=
TOOLKIT_OPTION = $(if $(TOOLKIT),--toolkit $(TOOLKIT))

bench: $(VENV)/dev.stamp ## measure time and memory of a cold 'cdigen generate', as ratios to bare Python (root)
	$(VENV)/bin/python tests/bench/cold_generate.py $(TOOLKIT_OPTION)

bench-start: $(VENV)/dev.stamp ## measure a container's start with a GPU, for each layout (root, after 'make provision')
	$(VENV)/bin/python tests/bench/start_containers.py $(TOOLKIT_OPTION)

bench-daemon: $(VENV)/dev.stamp ## measure 'cdigen run': event to spec, a cycle, waiting, memory (root)
	$(VENV)/bin/python tests/bench/daemon.py

bench-validate: $(VENV)/dev.stamp ## measure 'cdigen validate': 56 devices, 1,000 files, 100,000 devices
	$(VENV)/bin/python tests/bench/validate.py

bench-nri: $(VENV)/dev.stamp ## measure 'cdigen nri': registration, responses, 100 requests at a time, memory
	$(VENV)/bin/python tests/bench/nri.py

bench-kubelet: $(VENV)/dev.stamp ## measure 'cdigen kubelet': registration, responses with 5,000 replicas, waiting, memory
	$(VENV)/bin/python tests/bench/kubelet.py

bench-topology: $(VENV)/dev.stamp ## measure the choice of GPUs, matrix and picture, and 'cdigen topology' compared with 'cdigen list'
	$(VENV)/bin/python tests/bench/topology.py

bench-extender: $(VENV)/dev.stamp ## measure 'cdigen extender' with 1,000 nodes and 10,000 pods: filter, bind, memory
	$(VENV)/bin/python tests/bench/extender.py

bench-page: $(VENV)/dev.stamp ## measure the daemon's page: creation, 10,000 views, memory
	$(VENV)/bin/python tests/bench/page.py

pictures: $(VENV)/dev.stamp ## make the pictures of the daemon's page in docs/pictures (with chromium)
	$(VENV)/bin/python tests/e2e/page_pictures.py

soak: export CDIGEN_SOAK_UPGRADES ?= 200
soak: export CDIGEN_SOAK_KILLS ?= 500
soak: export CDIGEN_SOAK_CYCLES ?= 10000
soak: export CDIGEN_SOAK_STARTS ?= 150
soak: export CDIGEN_SOAK_HOOKS ?= 1200
soak: export CDIGEN_SOAK_PACKAGES ?= 200
soak: export CDIGEN_SOAK_CLAIMS ?= 500
soak: export CDIGEN_SOAK_PODS ?= 1000
soak: export CDIGEN_SOAK_QUEUE ?= 100
soak: export CDIGEN_SOAK_KUBELET_S ?= 600
soak: export CDIGEN_SOAK_GPU_MEMORY_S ?= 900
soak: export CDIGEN_SOAK_HANDOVERS ?= 100
soak: $(VENV)/dev.stamp ## run upgrades, kills, races and memory tests for a long time (root, after 'make provision')
	$(VENV)/bin/python -m pytest -s tests/daemon/test_loop_soak.py tests/nri/test_plugin_load.py tests/e2e/test_upgrades.py tests/e2e/test_hook_races.py tests/e2e/test_packages_deb.py tests/e2e/test_kubernetes.py tests/e2e/test_kubelet_soak.py tests/e2e/test_gpushare_pods.py tests/e2e/test_nri_handover.py
	$(VENV)/bin/python tests/bench/daemon.py --idle 300

provision: ## make the real driver trees and images for the end-to-end tests (root, several minutes)
	tests/e2e/provision

# The folder for the results, new or empty; by default build/real-gpu, whose old results are removed.
OUT ?=
real-gpu: $(VENV)/run.stamp ## run cdigen on a machine with NVIDIA's driver, and compare it with nvidia-smi (OUT=<folder>)
	$(if $(OUT),,rm -rf build/real-gpu)
	$(VENV)/bin/python tests/real_gpu $(if $(OUT),--output '$(OUT)')

# The Python that runs the hook on the host. The byte code of the hook is compiled for this Python.
HOOK_PYTHON ?= /usr/bin/python3
PREFIX ?= /usr
LIBEXECDIR ?= $(PREFIX)/libexec

# The folders of 'make install'; packagers set DESTDIR and PREFIX=/usr. HOST_PYTHON is the Python that runs cdigen on
# the host. PIP downloads the modules that cdigen needs for HOST_PYTHON. With INSTALL_DEPS=no, the distribution has them.
HOST_PYTHON ?= $(HOOK_PYTHON)
PIP ?= $(PYTHON) -m pip
INSTALL_DEPS ?= yes
INIT ?= systemd
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
DATADIR ?= $(PREFIX)/share
MANDIR ?= $(DATADIR)/man
# Debian's zsh does not read site-functions below /usr. The zsh of other distributions does not read vendor-completions.
ZSHDIR ?= $(DATADIR)/zsh/$(if $(wildcard $(DESTDIR)/$(DATADIR)/zsh/vendor-completions),vendor-completions,site-functions)
SYSCONFDIR ?= /etc
UNITDIR ?= $(LIBDIR)/systemd/system
UDEVRULESDIR ?= $(LIBDIR)/udev/rules.d
TMPFILESDIR ?= $(LIBDIR)/tmpfiles.d
# The folder of the code, which 'make install-files' does not install.
CODEDIR ?= $(LIBDIR)/cdigen
INSTALL_SETTINGS := DESTDIR PREFIX BINDIR LIBDIR LIBEXECDIR DATADIR MANDIR ZSHDIR SYSCONFDIR UNITDIR \
  UDEVRULESDIR TMPFILESDIR CODEDIR PYTHON HOST_PYTHON HOOK_PYTHON PIP INSTALL_DEPS INIT
INSTALL = $(foreach name,$(INSTALL_SETTINGS),$(name)='$($(name))') etc/install

install-hook: ## install the start-up hook alone (DESTDIR, PREFIX, LIBEXECDIR, HOOK_PYTHON)
	@$(INSTALL) install-hook

install: ## install cdigen on this host (DESTDIR, PREFIX, INSTALL_DEPS=no, INIT=openrc; root)
	@$(INSTALL) install

install-files: ## install all files except the code, for packages that contain the code (DESTDIR, CODEDIR)
	@$(INSTALL) install-files

# README.md with the pages, examples, alert rules, manifests and schemas that its links and theirs lead to.
DOCUMENTATION := README.md SECURITY.md CHANGELOG.md CONTRIBUTING.md docs examples packaging/kubernetes schemas
DOCDIR ?= $(DATADIR)/doc/cdigen

install-documentation: ## install the documentation, for packages (DESTDIR, DOCDIR)
	mkdir -p '$(DESTDIR)$(DOCDIR)'
	tar --create --exclude=__pycache__ --mode=u=rwX,go=rX $(DOCUMENTATION) | \
	  tar --extract --no-same-owner --same-permissions --directory '$(DESTDIR)$(DOCDIR)'

uninstall: ## remove the files of 'make install' (with the same DESTDIR and PREFIX)
	@$(INSTALL) uninstall

# A root of Debian 13 to build packages in, if this machine has another release.
DEB_ROOT ?=
deb: ## build the Debian packages into build/deb (DEB_ROOT=<root>; docs/how-to/packaging.md)
	@DEB_ROOT='$(DEB_ROOT)' packaging/build-deb build/deb

# Options of rpmbuild, such as '--with structlog' (docs/how-to/packaging.md).
RPM_OPTIONS ?=
rpm: ## build the RPM packages into build/rpm (RPM_OPTIONS='--with structlog')
	@packaging/build-rpm build/rpm $(RPM_OPTIONS)

IMAGE ?= build/image/cdigen.tar.zst
image: ## make the container image, without a registry, as an archive to load (IMAGE, DEB_ROOT; docs/how-to/container-image.md)
	@DEB_ROOT='$(DEB_ROOT)' packaging/image '$(IMAGE)'

release: $(VENV)/release.stamp ## make and check all files of the release for this commit's tag (DEB_ROOT; docs/contributing/releasing.md)
	@PYTHON=$(VENV)/bin/python DEB_ROOT='$(DEB_ROOT)' packaging/release

clean: ## remove the venv, build results and caches
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache

# Debian has venv and ensurepip in a package of their own, python3-venv.
$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "cdigen needs Python 3.11 or newer: set PYTHON=" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON): no module venv or ensurepip: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Only files with the hashes of the lock files. Source archives are not built, except that of argparse-manpage, which
# has no wheel.
PIP_LOCKED = $(VENV)/bin/pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all:

$(VENV)/run.stamp: pyproject.toml requirements.lock requirements-build.lock | $(VENV)/bin/pip
	$(PIP_LOCKED) --requirement requirements-build.lock --requirement requirements.lock
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/release.stamp: requirements-release.lock | $(VENV)/bin/pip
	$(PIP_LOCKED) --requirement requirements-release.lock
	@touch $@

$(VENV)/dev.stamp: requirements-dev.lock $(VENV)/run.stamp
	$(PIP_LOCKED) --no-binary argparse-manpage --no-build-isolation --requirement requirements-dev.lock
	@touch $@
