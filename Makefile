# prevue: one non-recursive Makefile (GNU make).
#
#   make                 ./prevue, ./prevue-lab  make test    set up, build, test every part
#   make check-quick     unit tests, kernels, lossless: a minute   make check-all   every test
#   make CORE=1          the same with a C compiler alone (GGUF models, prompts as ids or prepared)
#   make MPI=1           with ranks that mpirun starts (Open MPI); each kind of build has its own objects
#   make CUDA=1          with a device for NVIDIA GPUs, by nvcc; with CORE=1 too
#   make check-cuda      its kernels proved on this machine's GPU
#   make check-clients   the openai package (from PyPI) as a client of `prevue serve`
#   make check-python    the Python package as pip installs it, with mypy and numpy from PyPI
#   make check-replicas  three servers behind HAProxy and nginx: one is killed, all are restarted
#   make check-cross     build for the other architecture, test under qemu; FULL=1 runs every test
#   make lib install     libprevue, header, .pc, manual page, completions of shells, small models
#   make deb check-deb   a Debian package of the same; a test that unpacks, runs and removes it
#   make asan            the tests under ASan and UBSan
#   make check-kernels ARGS=...   make lint   make bench   make demo
#   make fuzz FUZZ_SECONDS=60     make fuzz-long FUZZ_HOURS=8   make fuzz-programs   doc/fuzzing.md
#
# Here: what the product is made of. tools/make/: kinds of build, CUDA and its simulator, packages, fuzzers, tests.
#
# CC, CFLAGS, CPPFLAGS, LDFLAGS, DESTDIR, PREFIX, libdir, mandir and BUILD are honoured, CUDA_HOME and NVCC
# with CUDA=1; WERROR=1 makes warnings errors. Nothing is tuned to this machine: a fast kernel is a file whose
# name ends in its instruction set, compiled with that set's flags and chosen at run time.

VERSION   = 0.1.0
SOVERSION = 0

CC      ?= cc
AR      ?= ar
# ccache, where it is installed, keeps what was compiled before. CCACHE= disables it.
CCACHE  ?= $(shell command -v ccache 2>/dev/null)
CFLAGS  ?= -g
PREFIX  ?= /usr/local
libexecdir ?= $(PREFIX)/libexec
PKG_CONFIG ?= pkg-config
JOBS    ?= $(shell nproc 2>/dev/null || echo 2)

include tools/make/variants.mk

# --- flags ----------------------------------------------------------------------------------

PV_DEFS += -D_POSIX_C_SOURCE=200809L -DPV_VERSION='"$(VERSION)"'
WARN     = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla \
           $(if $(filter 1,$(WERROR)),-Werror) \
           $(if $(SAN),-Wno-format-truncation -Wno-maybe-uninitialized) # false alarms of instrumented code
OPT      = -O2
# The places of variables in unrolled loops, for a debugger, take gcc up to half of its time.
NO_PLACES = -fno-var-tracking
# Contraction would let the compiler choose where sums are fused, and so change bits by file.
MUST     = -std=c11 -ffp-contract=off -fvisibility=hidden -fPIC -pthread
COMPILE  = $(CCACHE) $(CC) -Iinclude -Isrc $(PV_DEFS) $(DEPS_CFLAGS) $(CPPFLAGS) $(WARN) $(OPT) $(CFLAGS) \
           $(SAN_FLAGS) $(MUST)
LINK     = $(CC) $(CFLAGS) $(SAN_FLAGS) $(LDFLAGS) -pthread
# For the many programs of the tests, the faster linker where there is one.
GOLD    := $(if $(findstring $(shell uname -m),$(MACHINE)),$(shell echo 'int main(void) { return 0; }' | \
             $(CC) -fuse-ld=gold -x c -o /dev/null - 2>/dev/null && echo -fuse-ld=gold))
LINK_TEST = $(LINK) $(GOLD)
LIBS     = $(CUDA_LIBS) $(if $(filter 1,$(MPI)),$(MPI_LIBS)) $(DEPS_LIBS) -lm

include tools/make/cuda.mk

# One line per command; V=1 shows them whole.
say      = $(if $(V),,@printf '  %-4s %s\n' $(1) $@; )

# --- files ----------------------------------------------------------------------------------

SRC_DIRS = base tensor kernels kernels/ref $(if $(ARCH),kernels/$(ARCH)) dist format text audio video \
           vision audio_encoder lm family spec engine
SRC     := $(sort $(foreach d,$(SRC_DIRS),$(wildcard src/$(d)/*.c)))
ifeq ($(CORE),1)
SRC     := $(filter-out src/format/%_hf.c src/text/%.c src/base/png.c,$(SRC))
endif
# What needs FFmpeg is in the process that decodes, and not in the library.
SRC     := $(filter-out src/video/%_av.c,$(SRC))
ifneq ($(filter 1,$(CUDA) $(CUDASIM)),)
SRC      := $(filter-out src/kernels/device_cuda_none.c,$(SRC))
endif
SRC      := $(filter-out src/dist/transport_$(if $(filter 1,$(MPI)),mpi_none,mpi).c,$(SRC))
CLI_SRC     := $(sort $(wildcard cli/*.c))
LAB_ROWS    := $(sort $(wildcard lab/rows/*.c)) # rows of the library's tables that only the laboratory has
LAB_SRC     := $(sort $(wildcard lab/*.c)) $(LAB_ROWS) # prevue-lab; its options and printing are those of cli
ifeq ($(CORE),1)
CLI_SRC     := $(filter-out cli/cmd_frames.c cli/cmd_prepare.c cli/cmd_batch.c cli/batch_%.c cli/cmd_chat.c cli/chat_line.c,\
                 $(CLI_SRC))
LAB_SRC     := $(filter-out lab/cmd_view.c lab/view_%.c lab/html.c,$(LAB_SRC))
endif
ifneq ($(CORE),1)
SERVER_SRC  := $(filter-out server/remote_$(if $(CURL_FOUND),none,curl).c,$(sort $(wildcard server/*.c)))
endif
# The process that decodes what is not trusted; nothing is decoded in a CORE build.
HELPER_SRC  := $(if $(filter 1,$(CORE)),,$(sort $(wildcard helper/*.c)))
MEDIA_SRC   := $(if $(HELPER_SRC),$(sort $(wildcard src/video/*_av.c)))
BENCH_SRC   := $(sort $(wildcard bench/*.c)) # one program each
SPEED_SRC   := $(sort $(wildcard bench/speed/*.c)) # parts of bench_lm and bench_vision
RIG_SRC     := $(sort $(wildcard bench/rig/*.c)) # parts of bench_gpu

objects  = $(patsubst %.c,$(BUILD)/%.o,$(1))
OBJ     := $(call objects,$(SRC))
ifeq ($(CUDA),1)
OBJ     += $(patsubst %.cu,$(BUILD)/%.o,$(CUDA_SRC))
else ifeq ($(CUDASIM),1)
OBJ     += $(SIM_OBJ)
endif
CLI_OBJ := $(call objects,$(CLI_SRC))
LAB_OBJ := $(call objects,$(LAB_SRC))
SERVER_OBJ := $(call objects,$(SERVER_SRC)) $(if $(SERVER_SRC),$(BUILD)/page_files.o)
ALL_OBJ := $(OBJ) $(CLI_OBJ) $(LAB_OBJ) $(SERVER_OBJ) $(call objects,$(HELPER_SRC) $(MEDIA_SRC) $(BENCH_SRC) $(SPEED_SRC) $(RIG_SRC))

ARCHIVE   = $(BUILD)/libprevue.a
MEDIA_OBJ = $(call objects,$(MEDIA_SRC))
SO        = $(BUILD)/libprevue.so.$(VERSION)
HELPER    = $(if $(HELPER_SRC),$(BUILD)/prevue-media)
BENCH     = $(patsubst bench/%.c,$(BUILD)/%,$(BENCH_SRC))

.PHONY: prevue all lib setup demo bench lint format clean deps
.SECONDARY:
.DELETE_ON_ERROR:
# No built-in rules: one of them would make the directory server/page from server/page.c.
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules

prevue: all
all: $(BUILD)/prevue $(BUILD)/prevue-lab $(HELPER)
	@for p in $^; do n=$${p##*/}; \
	    cmp -s $$p $$n || { cp -f $$p $$n.new && mv -f $$n.new $$n; }; done

lib: $(SO)

# --- compiling ------------------------------------------------------------------------------

# Callers' threads may have small stacks (PV_THREAD_STACK in prevue.h). A sanitizer's frames are larger.
$(BUILD)/src/%.o: WARN += $(if $(SAN)$(SAN_FLAGS),,-Wframe-larger-than=16384)
# Tables of test cases leave out what is zero.
$(BUILD)/tests/%.o: WARN += -Wno-missing-field-initializers
# Tests are compiled more often than they run.
$(BUILD)/tests/unit/%.o $(BUILD)/tests/cudasim/%.o $(BUILD)/tests/fuzz/%.o: OPT = -O1
$(BUILD)/src/kernels/%.o: OPT = -O3 $(NO_PLACES)
$(BUILD)/src/kernels/$(ARCH)/%.o: LESS_SAN = $(KERNEL_SAN)
$(BUILD)/src/dist/transport_mpi.o: ISA = $(MPI_CFLAGS)
$(BUILD)/src/video/resize.o: OPT = -O3
$(BUILD)/src/audio/mel.o: OPT = -O3
$(BUILD)/src/base/digest.o: OPT = -O3
$(BUILD)/src/video/helper_process.o: ISA = -DPV_LIBEXECDIR='"$(libexecdir)"'
# Its lanes are faster as eight numbers than as four vectors of two.
$(BUILD)/src/base/checksum.o: OPT = -O3 -fno-tree-slp-vectorize
$(BUILD)/tests/%.o: TEST_INC = -Itests

AVX2       = -mavx2 -mfma -mf16c
AVX512     = $(AVX2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni
AVX512BF16 = $(AVX512) -mavx512bf16
DOTPROD    = -march=armv8.2-a+dotprod+fp16
$(BUILD)/src/kernels/x86/%_avx2.o:       ISA = $(AVX2)
$(BUILD)/src/kernels/x86/%_avx512.o:     ISA = $(AVX512)
$(BUILD)/src/kernels/x86/%_avx512bf16.o: ISA = $(AVX512BF16)
$(BUILD)/src/kernels/x86/%_amx.o:        ISA = $(AVX512BF16) -mamx-tile -mamx-bf16 -mamx-int8
$(BUILD)/src/kernels/arm/%_dotprod.o:    ISA = $(DOTPROD)
$(BUILD)/src/kernels/arm/%_i8mm.o:       ISA = $(DOTPROD)+i8mm
$(BUILD)/src/kernels/arm/%_bf16.o:       ISA = $(DOTPROD)+i8mm+bf16

$(BUILD)/%.o: %.c $(BUILD)/flags | deps
	@mkdir -p $(@D)
	$(call say,CC)$(COMPILE) $(TEST_INC) $(ISA) $(LESS_SAN) -MMD -MP -c -o $@ $<

# PLAIN names the build that objects are taken from when they are the same there: for a build without
# libraries all that do not ask for PV_CORE; for sanitizers the fast kernels, and for TSan also those in
# plain C, which share nothing, and the simulated GPU's, whose lanes are one thread.
ifdef PLAIN
SAME = $(if $(SAN),$(wildcard src/kernels/$(ARCH)/*.c) $(if $(filter thread,$(SAN)),$(wildcard src/kernels/ref/*.c) $(addprefix cudasim/,$(SIM_SRC) $(CHECK_CUDA_CU))),\
    $(filter-out $(shell grep -rl PV_CORE src cli lab bench),$(SRC) $(CLI_SRC) $(LAB_SRC) $(BENCH_SRC)))
$(patsubst %,$(BUILD)/%.o,$(basename $(SAME))): $(BUILD)/%.o: $(PLAIN)/%.o
	@mkdir -p $(@D)
	@ln -f $< $@
endif

# Objects are made again when the compiler or its flags change.
FLAGS := $(subst ','\'',$(filter-out $(CCACHE),$(COMPILE)) $(SIM_FLAGS)$(if $(filter 1,$(CUDA)), $(NVCC) $(NVCC_FLAGS)))
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(FLAGS)' | cmp -s - $@ || echo '$(FLAGS)' > $@
.PHONY: FORCE
FORCE:

deps:
ifneq ($(CORE),1)
ifneq ($(DEPS_FOUND),yes)
	@echo "prevue needs the libraries jansson, pcre2, utf8proc, FFmpeg, zlib and libmicrohttpd: run 'make setup' to install" \
	      "them (Debian), or 'make CORE=1' to build without." >&2; exit 1
endif
endif

# --- linking --------------------------------------------------------------------------------

# A digest of the library's objects: bits of results may differ between builds, so results kept on
# disk are used by the same build only.
$(BUILD)/build_id.c: $(OBJ) $(MEDIA_OBJ)
	@printf '#include "base/build_id.h"\n\nconst char *build_id(void)\n{\n    return "%s";\n}\n' \
	    "$$(cat $^ | sha256sum | cut -c 1-64)" > $@

$(BUILD)/build_id.o: $(BUILD)/build_id.c
	$(call say,CC)$(COMPILE) -c -o $@ $<

$(ARCHIVE): $(OBJ) $(BUILD)/build_id.o
	@rm -f $@
	$(call say,AR)$(AR) rcs $@ $^

# The page's files as one object. The server's own headers are seen by `prevue serve`, too.
PAGE := $(sort $(wildcard server/page/*.html server/page/*.css server/page/*.js))
$(BUILD)/page_files.c: $(PAGE) server/page tools/embed.sh
	@mkdir -p $(@D)
	@tools/embed.sh $(PAGE) > $@

$(BUILD)/page_files.o: $(BUILD)/page_files.c server/page.h
	$(call say,CC)$(COMPILE) -I. -c -o $@ $<
$(BUILD)/cli/cmd_serve.o $(BUILD)/cli/cmd_version.o: TEST_INC = -I.
$(LAB_OBJ): TEST_INC = -Icli

$(BUILD)/prevue: $(CLI_OBJ) $(SERVER_OBJ) $(ARCHIVE)
	$(call say,LINK)$(LINK) -o $@ $^ $(LIBS) $(SERVER_LIBS)

# What the laboratory takes of cli: the linker leaves out the commands of prevue.
$(BUILD)/cli.a: $(filter-out %/main.o,$(CLI_OBJ))
	@rm -f $@
	$(call say,AR)$(AR) rcs $@ $^

$(BUILD)/prevue-lab: $(LAB_OBJ) $(BUILD)/cli.a $(ARCHIVE)
	$(call say,LINK)$(LINK) -o $@ $^ $(LIBS)

$(BUILD)/prevue_mpi: $(CLI_OBJ) $(SERVER_OBJ) $(filter-out %/transport_mpi_none.o,$(OBJ)) \
    $(BUILD)/src/dist/transport_mpi.o $(BUILD)/build_id.o
	$(call say,LINK)$(LINK) -o $@ $^ $(LIBS) $(MPI_LIBS) $(SERVER_LIBS)

$(BUILD)/prevue-media: $(call objects,$(HELPER_SRC)) $(MEDIA_OBJ) $(ARCHIVE)
	$(call say,LINK)$(LINK) -o $@ $^ -Wl,--as-needed $(LIBS) $(MEDIA_LIBS)

# Programs of the tests find it beside them.
$(BUILD)/unit/prevue-media: $(HELPER)
	@mkdir -p $(@D)
	@ln -f $< $@

$(SO): $(OBJ) $(BUILD)/build_id.o
	$(call say,LINK)$(LINK) -shared -Wl,-soname,libprevue.so.$(SOVERSION) -Wl,-z,defs -o $@ $^ $(LIBS)
	@ln -sf $(@F) $(BUILD)/libprevue.so.$(SOVERSION)
	@ln -sf $(@F) $(BUILD)/libprevue.so

$(BUILD)/bench_lm $(BUILD)/bench_vision: $(call objects,$(SPEED_SRC))
$(BUILD)/bench_gpu: $(call objects,$(RIG_SRC))
$(BENCH): $(BUILD)/%: $(BUILD)/bench/%.o $(ARCHIVE)
	$(call say,LINK)$(LINK) -o $@ $(filter %.o,$^) $(ARCHIVE) $(LIBS)

# --- targets --------------------------------------------------------------------------------

# Libraries and compiler are looked up while this file is read, so what installs them runs first
# and the rest in a second make.
AGAIN = +$(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(JOBS))

setup:
	@tools/setup.sh

include tools/make/package.mk tools/make/fuzz.mk tools/make/tests.mk

demo: setup
	@$(AGAIN) all
	@tools/demo.sh

# Speed of a shape with random weights, in each of TYPES, and beside llama.cpp where LLAMA_BENCH
# names its llama-bench. ARGS and CSV go to bench_lm. See bench/README.md.
SHAPE   ?= q05
TYPES   ?= q8_0
THREADS ?= 2
MODELS   = $(foreach t,$(TYPES),$(BUILD)/models/$(SHAPE)-$(t).gguf)

$(BUILD)/models/$(SHAPE)-%.gguf: | $(BUILD)/make_model
	@mkdir -p $(@D)
	$(call say,MAKE)$(BUILD)/make_model --shape $(SHAPE) --type $* $@

bench: $(BUILD)/bench_lm $(MODELS)
	@for m in $(MODELS); do \
	    $(BUILD)/bench_lm -m $$m -t $(THREADS) $(if $(LLAMA_BENCH),--llama-bench $(LLAMA_BENCH)) \
	        --commit "$$(git describe --always --dirty 2>/dev/null || echo unknown)" \
	        $(if $(CSV),--csv $(CSV)) $(ARGS) && echo || exit 1; done

lint:
	@tools/setup.sh lint
	@CC='$(CC)' tools/lint.sh

# Also writes what is generated from the public header.
format:
	clang-format -i $(shell git ls-files -co --exclude-standard '*.c' '*.h' '*.cu' '*.cuh' '*.cpp')
	python3 python/make_abi.py

clean:
	rm -rf build prevue prevue-lab prevue-media

-include $(ALL_OBJ:.o=.d)
