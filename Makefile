# Short commands for CMake (CMakePresets.json), which builds everything. make help lists them.
PRESET ?= release
PREFIX ?= /usr/local
BUILD := build/$(PRESET)
# CUDA=1 builds the module for NVIDIA's GPUs, CUDA=0 does not; without it, CMake looks for a GPU.
NVCC := $(shell command -v nvcc || PATH="$$CUDA_HOME/bin:/usr/local/cuda/bin" command -v nvcc)
CUDA_OPTION = $(if $(CUDA),-DTRIREME_CUDA=$(if $(filter 0 OFF off,$(CUDA)),OFF,ON))
test test-all bundle: CUDA ?= $(if $(NVCC),1)

.PHONY: help deps deps-test build demo quick test test-all test-cluster test-gpu bench bench-gpu bundle install fuzz sanitize format tidy clean
help:
	@echo 'make demo      install what is needed, build, train mnist-cnn for one epoch on Fashion-MNIST'
	@echo 'make quick     build, run most unit tests and a part of all others: about two minutes'
	@echo 'make test      install what is needed, build, run every test'
	@echo 'make test-all  the same with the whole matrix of strategies, models and settings, with oneDNN 3 and on Debian 13: hours'
	@echo 'make test-cluster  what runs on a virtual Slurm cluster, also what takes minutes'
	@echo 'make test-gpu  what needs a GPU: every op, training, the sanitizers of CUDA;  make bench-gpu: its figures'
	@echo 'make build     the release build, in build/release;  CUDA=1: with the module for GPUs of NVIDIA, also where none is'
	@echo 'make bench     the figures of docs/performance.md, side by side with PyTorch where it is installed'
	@echo 'make install   honours DESTDIR and PREFIX'
	@echo 'make bundle    build/trireme-VERSION-x86_64.tar.zst, which runs on any Linux where it is unpacked'
	@echo 'make sanitize  the unit tests under AddressSanitizer, UBSan and ThreadSanitizer'
	@echo 'make fuzz      every fuzz target for FUZZ_SECONDS (60) seconds'
	@echo 'make format    clang-format over the tree;  make tidy: clang-tidy'

deps:
	@scripts/install-deps

deps-test:
	@scripts/install-deps --test

build: deps
	@scripts/configure $(PRESET) $(CUDA_OPTION)
	@cmake --build $(BUILD) --target program

demo: build
	@scripts/install-deps --demo
	@$(BUILD)/bin/trireme train recipes/mnist-cnn.yaml trainer.max_epochs=1 --run-dir runs/demo

quick: deps-test
	@scripts/configure $(PRESET) -DTRIREME_TESTS=ON
	@cmake --build $(BUILD)
	@scripts/test --quick

test: deps-test
	@scripts/configure $(PRESET) -DTRIREME_TESTS=ON $(CUDA_OPTION)
	@cmake --build $(BUILD)
	@scripts/test

test-all: test test-cluster
	@MATRIX=all tests/equivalence/test_deterministic.py $(BUILD)
	@MATRIX=all tests/equivalence/test_matrix.py $(BUILD)
	@WAITS=all $(BUILD)/bin/fault_test_waits
	@TEST_DEVICE=far TRIREME_FAR_DELAY_US=30 tests/equivalence/test_matrix.py $(BUILD)
	@HOSTS=bullseye,trixie tests/cli/test_bundle.py $(BUILD) || [ $$? = 77 ]
	@scripts/hip || [ $$? = 77 ]
	@scripts/onednn3 || [ $$? = 77 ]
	@scripts/debian trixie || [ $$? = 77 ]

test-cluster: deps-test
	@scripts/configure $(PRESET) -DTRIREME_TESTS=ON
	@cmake --build $(BUILD)
	@CLUSTER=all scripts/test cluster

# Builds nothing: takes this tree's build or, on a machine without Debian's packages, the bundle in
# build/, or PREFIX_GPU=FOLDER (of an unpacked bundle). TEST_GPU=NAMES chooses items.
test-gpu:
	@tests/gpu/test-gpu --results build/test-gpu.json \
	    $(if $(PREFIX_GPU),--prefix '$(PREFIX_GPU)') $(TEST_GPU)

bench-gpu:
	@bench/gpu $(if $(PREFIX_GPU),--prefix '$(PREFIX_GPU)')

bench: build
	@scripts/install-deps --bench
	@test -x build/torch/bin/python || bench/install-torch
	@bench/run

install: build
	@DESTDIR=$(DESTDIR) cmake --install $(BUILD) --prefix $(PREFIX)

bundle: build
	@scripts/install-deps --bundle
	@scripts/bundle $(BUILD)

fuzz: deps-test
	@scripts/fuzz $(or $(FUZZ_SECONDS),60)

sanitize: deps-test
	@scripts/sanitize

format:
	@scripts/check format -i

tidy: deps-test
	@scripts/configure $(PRESET) -DTRIREME_TESTS=ON
	@git ls-files --cached --others --exclude-standard 'src/*.c' | xargs -P 2 -n 8 clang-tidy -p $(BUILD) --quiet

clean:
	rm -rf build
