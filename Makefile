# prevue: one non-recursive Makefile (GNU make).
#
#   make                 ./prevue                make test    set up, build, test every part
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
# CC, CFLAGS, CPPFLAGS, LDFLAGS, DESTDIR, PREFIX, libdir, mandir and BUILD are honoured, CUDA_HOME and NVCC
# with CUDA=1; WERROR=1 makes warnings errors. Nothing is tuned to this machine: a fast kernel is a file whose name ends in its
# instruction set, compiled with that set's flags and chosen at run time.

VERSION   = 0.1.0
SOVERSION = 0

CC      ?= cc
AR      ?= ar
# ccache, where it is installed, keeps what was compiled before. CCACHE= disables it.
CCACHE  ?= $(shell command -v ccache 2>/dev/null)
CUDA_HOME ?= /usr/local/cuda
NVCC    ?= $(if $(shell command -v nvcc 2>/dev/null),nvcc,$(CUDA_HOME)/bin/nvcc)
CFLAGS  ?= -g
PREFIX  ?= /usr/local
bindir  ?= $(PREFIX)/bin
libdir  ?= $(PREFIX)/lib
libexecdir ?= $(PREFIX)/libexec
incdir  ?= $(PREFIX)/include
mandir  ?= $(PREFIX)/share/man
# The program looks for its models in ../share/prevue from the directory that it is in.
datadir  = $(abspath $(bindir)/../share/prevue)
bashcompdir ?= $(PREFIX)/share/bash-completion/completions
zshcompdir  ?= $(PREFIX)/share/zsh/site-functions
fishcompdir ?= $(PREFIX)/share/fish/vendor_completions.d
INSTALL ?= install
PKG_CONFIG ?= pkg-config
FUZZ_SECONDS ?= 60
FUZZ_HOURS ?= 1
JOBS    ?= $(shell nproc 2>/dev/null || echo 2)

# --- variants: each has its own tree of objects ---------------------------------------------

# CUDASIM=1 puts the simulator of the tests (tests/cudasim) in the place of CUDA.
VARIANT = $(if $(filter 1,$(CORE)),core)$(if $(filter 1,$(MPI)),mpi)$(if $(filter 1,$(CUDA)),cuda)$(if $(filter 1,$(CUDASIM)),cudasim)$(if $(filter 1,$(SAN)),asan)$(if $(filter thread,$(SAN)),tsan)
BUILD  ?= build$(if $(VARIANT),/$(VARIANT))

ifeq ($(SAN),1)
SAN_FLAGS ?= -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
else ifeq ($(SAN),thread)
SAN_FLAGS ?= -fsanitize=thread
endif

MACHINE := $(shell $(CC) -dumpmachine 2>/dev/null)
ARCH    := $(if $(filter x86_64%,$(MACHINE)),x86,$(if $(filter aarch64% arm64%,$(MACHINE)),arm))

ifeq ($(CORE),1)
PV_DEFS = -DPV_CORE
else
DEPS        = jansson libpcre2-8 libutf8proc zlib
MEDIA_DEPS  = libavformat libavcodec libswscale libswresample libavutil # of the program that decodes
SERVER_DEPS = libmicrohttpd # of the program, not of the library
DEPS_FOUND := $(shell $(PKG_CONFIG) --exists $(DEPS) $(MEDIA_DEPS) $(SERVER_DEPS) 2>/dev/null && echo yes)
ifeq ($(DEPS_FOUND),yes)
DEPS_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(DEPS) $(MEDIA_DEPS))
DEPS_LIBS   := $(shell $(PKG_CONFIG) --libs $(DEPS))
MEDIA_LIBS  := $(shell $(PKG_CONFIG) --libs $(MEDIA_DEPS))
# To fetch media by http(s) URLs, where it is installed.
CURL_FOUND  := $(shell $(PKG_CONFIG) --exists libcurl 2>/dev/null && echo yes)
SERVER_LIBS := $(shell $(PKG_CONFIG) --libs $(SERVER_DEPS) $(if $(CURL_FOUND),libcurl))
endif
endif

# Flags of MPI's own compiler, for the one file that needs it and for linking.
MPI_CFLAGS := $(shell $(PKG_CONFIG) --cflags ompi-c 2>/dev/null || mpicc --showme:compile 2>/dev/null)
MPI_LIBS   := $(shell $(PKG_CONFIG) --libs ompi-c 2>/dev/null || mpicc --showme:link 2>/dev/null)

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

# SASS for the GPUs that are common, and PTX from which the driver makes what newer ones need.
# Kernels that use what only Hopper has are left out of the rest by the files themselves.
CUDA_CODE ?= -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_89,code=sm_89 \
             -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_80,code=compute_80
NVCC_FLAGS = -O3 -std=c++17 -Iinclude -Isrc $(CUDA_CODE) -Xcompiler -fPIC,-fvisibility=hidden
CUDA_DIRS := $(wildcard $(CUDA_HOME)/lib64 $(CUDA_HOME)/lib)
# The same files as C++, for the simulator.
# gcc 12, making vectors of neighbours, forgets to round a double to float before it is one again.
# The simulator runs on the machine that builds it, so it may use that machine's vector instructions.
SIM_ISA   ?= $(if $(findstring $(shell uname -m),$(MACHINE)),$(shell \
    grep -qw avx512f /proc/cpuinfo && echo -march=x86-64-v4 || { grep -qw avx2 /proc/cpuinfo && echo -march=x86-64-v3; }))
SIM_OPT    = -O2
SIM_FLAGS  = $(SIM_ISA) -fno-tree-slp-vectorize -x c++ -std=c++17 -DPV_CUDASIM -Iinclude -Isrc -Itests \
             -Wall -Wshadow -Wunused-parameter -Wno-unknown-pragmas $(if $(filter 1,$(WERROR)),-Werror) $(SIM_OPT) \
             $(CFLAGS) $(NO_PLACES) $(SAN_FLAGS) -ffp-contract=off -fvisibility=hidden -fPIC -pthread
ifeq ($(CUDA),1)
CUDA_LIBS ?= $(foreach d,$(CUDA_DIRS),-L$(d) -Wl,-rpath,$(d)) -lcublasLt -lcudart_static -lstdc++ \
             -lrt -ldl
else ifeq ($(CUDASIM),1)
CUDA_LIBS ?= -lstdc++
endif

# One line per command; V=1 shows them whole.
say      = $(if $(V),,@printf '  %-4s %s\n' $(1) $@; )

# --- files ----------------------------------------------------------------------------------

SRC_DIRS = base tensor kernels kernels/ref $(if $(ARCH),kernels/$(ARCH)) dist format text audio video \
           vision hearing lm family spec engine
SRC     := $(sort $(foreach d,$(SRC_DIRS),$(wildcard src/$(d)/*.c)))
ifeq ($(CORE),1)
SRC     := $(filter-out src/format/%_hf.c src/text/%.c src/base/png.c,$(SRC))
endif
# What needs FFmpeg is in the process that decodes, and not in the library.
SRC     := $(filter-out src/video/%_av.c,$(SRC))
CUDA_SRC := $(sort $(wildcard src/kernels/cuda/*.cu))
SIM_SRC  := $(CUDA_SRC) $(sort $(wildcard tests/cudasim/*.cpp))
SIM_OBJ  := $(patsubst %,$(BUILD)/cudasim/%.o,$(basename $(SIM_SRC)))
ifneq ($(filter 1,$(CUDA) $(CUDASIM)),)
SRC      := $(filter-out src/kernels/device_cuda_none.c,$(SRC))
endif
SRC      := $(filter-out src/dist/transport_$(if $(filter 1,$(MPI)),mpi_none,mpi).c,$(SRC))
CLI_SRC     := $(sort $(wildcard cli/*.c))
ifeq ($(CORE),1)
CLI_SRC     := $(filter-out cli/cmd_frames.c cli/cmd_view.c cli/cmd_prepare.c cli/view_%.c \
                 cli/cmd_batch.c cli/batch_%.c cli/cmd_chat.c cli/chat_line.c,\
                 $(CLI_SRC))
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
UNIT_SRC    := $(sort $(wildcard tests/unit/test_*.c))
# The checker of kernels has two programs, one for CPUs and one for CUDA.
CHECK_TOOLS     = tests/kernels/check_tools.c
CHECK_CUDA_SRC := $(sort $(wildcard tests/kernels/check_cuda*.c))
CHECK_CUDA_CU  := tests/kernels/hopper_sums.cu
KERNELS_SRC    := $(filter-out $(CHECK_CUDA_SRC),$(sort $(wildcard tests/kernels/*.c)))
FUZZ_SRC    := $(sort $(wildcard tests/fuzz/fuzz_*.c))
GOLDEN_SRC  := $(sort $(wildcard tests/golden/*.c)) # programs for tools/golden
SIM_TEST_SRC := $(sort $(wildcard tests/cudasim/test_*.c)) # unit tests over the simulator of CUDA
GPU_SRC     := $(sort $(wildcard tests/gpu/*.c)) # programs that need a GPU

objects  = $(patsubst %.c,$(BUILD)/%.o,$(1))
OBJ     := $(call objects,$(SRC))
ifeq ($(CUDA),1)
OBJ     += $(patsubst %.cu,$(BUILD)/%.o,$(CUDA_SRC))
else ifeq ($(CUDASIM),1)
OBJ     += $(SIM_OBJ)
endif
CLI_OBJ := $(call objects,$(CLI_SRC))
SERVER_OBJ := $(call objects,$(SERVER_SRC)) $(if $(SERVER_SRC),$(BUILD)/page_files.o)
ALL_OBJ := $(OBJ) $(CLI_OBJ) $(SERVER_OBJ) $(call objects,$(HELPER_SRC) $(MEDIA_SRC) $(BENCH_SRC) $(SPEED_SRC) $(RIG_SRC) $(UNIT_SRC) $(KERNELS_SRC) $(FUZZ_SRC) \
           $(GOLDEN_SRC) $(SIM_TEST_SRC) $(GPU_SRC) tests/fuzz/replay.c tests/server/serve_client.c tests/server/hostile_client.c $(CHECK_CUDA_SRC)) $(SIM_OBJ)

ARCHIVE   = $(BUILD)/libprevue.a
MEDIA_OBJ = $(call objects,$(MEDIA_SRC))
SO        = $(BUILD)/libprevue.so.$(VERSION)
HELPER    = $(if $(HELPER_SRC),$(BUILD)/prevue-media)
UNIT      = $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(UNIT_SRC))
BENCH     = $(patsubst bench/%.c,$(BUILD)/%,$(BENCH_SRC))
GOLDEN    = $(patsubst tests/golden/%.c,$(BUILD)/%,$(GOLDEN_SRC))
REPLAY    = $(patsubst tests/fuzz/fuzz_%.c,$(BUILD)/replay_%,$(FUZZ_SRC))
FUZZ      = $(patsubst tests/fuzz/fuzz_%.c,$(BUILD)/fuzz_%,$(FUZZ_SRC))
CHECK_KERNELS = $(if $(KERNELS_SRC),$(BUILD)/check_kernels)
# Needs a C++ compiler, which nothing else does.
HAVE_CXX     := $(shell command -v $(firstword $(CXX)) 2>/dev/null)
CHECK_CUDASIM = $(if $(HAVE_CXX),$(BUILD)/check_cudasim)
# The program with MPI in the place of none, for the tests, where Open MPI is installed.
HAVE_MPI     := $(shell $(PKG_CONFIG) --exists ompi-c 2>/dev/null && command -v mpirun 2>/dev/null)
PREVUE_MPI    = $(if $(HAVE_MPI),$(if $(MPI)$(SAN)$(CORE),,$(BUILD)/prevue_mpi))
SIM_TEST      = $(if $(HAVE_CXX),$(patsubst tests/cudasim/%.c,$(BUILD)/%,$(SIM_TEST_SRC)))

.PHONY: all prevue lib setup demo test check check-all check-quick quick shared-kernels objects core-programs programs unit check-kernels check-cuda \
        check-cross check-clients check-python check-replicas check-page asan tsan core fuzz fuzz-long fuzz-programs fuzz-links fuzz-replay lint format bench install uninstall deb check-deb clean deps
.SECONDARY:
.DELETE_ON_ERROR:
# No built-in rules: one of them would make the directory server/page from server/page.c.
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules

prevue: all
all: $(BUILD)/prevue $(HELPER)
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
    $(filter-out $(shell grep -rl PV_CORE src cli bench),$(SRC) $(CLI_SRC) $(BENCH_SRC)))
$(patsubst %,$(BUILD)/%.o,$(basename $(SAME))): $(BUILD)/%.o: $(PLAIN)/%.o
	@mkdir -p $(@D)
	@ln -f $< $@
endif

$(BUILD)/%.o: %.cu $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,NVCC)$(NVCC) $(NVCC_FLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

$(BUILD)/cudasim/%.o: %.cu $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CXX)$(CCACHE) $(CXX) $(SIM_FLAGS) -MMD -MP -c -o $@ $<

# Matrix products of warps, where the simulator spends most of its arithmetic.
$(BUILD)/cudasim/tests/cudasim/cudasim.o: SIM_OPT = -O3

$(BUILD)/cudasim/%.o: %.cpp $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CXX)$(CCACHE) $(CXX) $(SIM_FLAGS) -MMD -MP -c -o $@ $<

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

-include $(ALL_OBJ:.o=.d)

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

$(BUILD)/prevue: $(CLI_OBJ) $(SERVER_OBJ) $(ARCHIVE)
	$(call say,LINK)$(LINK) -o $@ $^ $(LIBS) $(SERVER_LIBS)

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

# Clients that behave badly, for tests/server.
$(BUILD)/serve_client $(BUILD)/hostile_client: $(BUILD)/%: $(BUILD)/tests/server/%.o
	$(call say,LINK)$(LINK) -o $@ $^

$(GOLDEN): $(BUILD)/%: $(BUILD)/tests/golden/%.o $(ARCHIVE)
	$(call say,LINK)$(LINK) -o $@ $^ $(LIBS)

# Tests of the server's parts.
SERVE_UNIT = remote_rules multipart data_url json_memory upload_store
$(foreach t,$(SERVE_UNIT),$(BUILD)/tests/unit/test_$(t).o): TEST_INC = -Itests -Iserver
$(foreach t,$(SERVE_UNIT),$(eval $(BUILD)/unit/test_$(t): $(BUILD)/server/$(t).o))

$(BUILD)/unit/test_upload_store: $(addprefix $(BUILD)/server/,upload_info.o temporary_dir.o multipart.o api_error.o unique_id.o)

# And of the command line's.
CLI_UNIT = machine known_models bench_stats multiple_choice
$(foreach t,$(CLI_UNIT),$(BUILD)/tests/unit/test_$(t).o): TEST_INC = -Itests -Icli
$(foreach t,$(CLI_UNIT),$(eval $(BUILD)/unit/test_$(t): $(BUILD)/cli/$(t).o))
$(BUILD)/unit/test_bench_stats: $(BUILD)/cli/figures.o

# And of what decodes, with FFmpeg; fuzz_boxes runs fuzz_video's with other changes.
DECODING = $(foreach t,video video_hostile video_memory media_proxy sound_av media_loader_sound disk_media,$(BUILD)/unit/test_$(t)) \
           $(foreach f,video boxes,$(BUILD)/replay_$(f) $(BUILD)/fuzz_$(f))
$(DECODING): $(MEDIA_OBJ)
$(DECODING): TEST_LIBS = $(MEDIA_LIBS)

$(UNIT): $(BUILD)/unit/%: $(BUILD)/tests/unit/%.o $(ARCHIVE) | $(if $(HELPER),$(BUILD)/unit/prevue-media)
	@mkdir -p $(@D)
	$(call say,LINK)$(LINK_TEST) -o $@ $(filter %.o,$^) $(ARCHIVE) $(LIBS) $(TEST_LIBS)

$(BUILD)/check_kernels: $(call objects,$(KERNELS_SRC)) $(ARCHIVE)
	$(call say,LINK)$(LINK) -o $@ $^ $(LIBS)

$(BUILD)/check_cuda: $(call objects,$(CHECK_CUDA_SRC) $(CHECK_TOOLS)) $(CHECK_CUDA_CU:%.cu=$(BUILD)/%.o) $(ARCHIVE)
	$(call say,LINK)$(LINK) -o $@ $^ $(LIBS)

# The same over the simulator, whatever this build has for CUDA.
NO_CUDA_OBJ = $(filter-out $(BUILD)/src/kernels/cuda/%.o $(BUILD)/src/kernels/device_cuda_none.o,$(OBJ))
SIM_PARTS = $(addprefix $(BUILD)/src/,base/%.o tensor/%.o kernels/%.o lm/sampling.o video/patches.o)
$(BUILD)/check_cudasim: $(call objects,$(CHECK_CUDA_SRC) $(CHECK_TOOLS)) $(SIM_OBJ) \
    $(CHECK_CUDA_CU:%.cu=$(BUILD)/cudasim/%.o) \
    $(filter-out %/png.o,$(filter $(SIM_PARTS),$(NO_CUDA_OBJ)))
	$(call say,LINK)$(LINK) -o $@ $^ -lstdc++ -lm

$(SIM_TEST): $(BUILD)/%: $(BUILD)/tests/cudasim/%.o $(SIM_OBJ) $(NO_CUDA_OBJ) $(BUILD)/build_id.o
	$(call say,LINK)$(LINK_TEST) -o $@ $^ $(DEPS_LIBS) -lstdc++ -lm

$(BUILD)/check_engine_cuda $(BUILD)/check_gpus_cuda: $(BUILD)/%: $(BUILD)/tests/gpu/%.o $(ARCHIVE)
	$(call say,LINK)$(LINK) -o $@ $^ $(LIBS)

# Targets with a part that is elsewhere.
$(BUILD)/replay_boxes $(BUILD)/fuzz_boxes: $(BUILD)/tests/fuzz/fuzz_video.o
$(BUILD)/replay_jsonl $(BUILD)/fuzz_jsonl: $(BUILD)/cli/jsonl.o
SERVE_PARTS = $(addprefix $(BUILD)/server/,chat_request.o chat_parts.o json_fields.o json_memory.o media_part.o data_url.o \
                base64.o multipart.o api_error.o upload_store.o upload_info.o temporary_dir.o unique_id.o)
SERVE_FUZZ  = serve_request serve_multipart serve_data_url
$(foreach f,$(SERVE_FUZZ),$(BUILD)/tests/fuzz/fuzz_$(f).o): TEST_INC = -Itests -Iserver
$(foreach f,$(SERVE_FUZZ),$(BUILD)/replay_$(f) $(BUILD)/fuzz_$(f)): $(SERVE_PARTS)
$(REPLAY): $(BUILD)/replay_%: $(BUILD)/tests/fuzz/fuzz_%.o $(BUILD)/tests/fuzz/replay.o $(ARCHIVE)
	$(call say,LINK)$(LINK_TEST) -o $@ $(filter %.o,$^) $(ARCHIVE) $(LIBS) $(TEST_LIBS)

$(FUZZ): $(BUILD)/fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(ARCHIVE)
	$(call say,LINK)$(LINK) -fsanitize=fuzzer -o $@ $(filter %.o,$^) $(ARCHIVE) $(LIBS) $(TEST_LIBS)

# --- tests ----------------------------------------------------------------------------------

# Libraries and compiler are looked up while this file is read, so what installs them runs first
# and the rest in a second make.
AGAIN = +$(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(JOBS))

setup:
	@tools/setup.sh

# test leaves out what tests/only_all.txt lists; check-all runs everything, on all cores; check-quick a choice
# for while one works. Elsewhere each program has one core, but for those about threads (tests/run.sh).
export TEST_WIDE = $(patsubst %,$(BUILD)/unit/test_%,pool ring transport session disk_cache schedule_parallel video_memory)
test check-quick: export TEST_LEFT_OUT = $(abspath tests/only_all.txt)
test check-quick asan tsan: export TEST_PIN = 1
test: setup
	@$(AGAIN) check

check-all: setup
	@$(AGAIN) check SOAK=3

check-quick: setup
	@$(AGAIN) quick

# All that is compiled from C; core-programs are those that need no library.
objects: $(ALL_OBJ)
core-programs: $(BUILD)/prevue $(HELPER) $(CHECK_KERNELS) $(CHECK_CUDASIM) $(BENCH) $(BUILD)/serve_client $(BUILD)/hostile_client
programs: core-programs $(PREVUE_MPI) $(UNIT) $(SIM_TEST) $(REPLAY) $(GOLDEN)

PYTHON3 := $(shell command -v python3)

# The longest first, so that all cores are busy until the end.
SCRIPTS  = 'tests/cli/run.sh 1/2' 'tests/cli/run.sh 2/2' tests/server/run.sh $(if $(SAN),,tests/packages/python.sh tests/packages/examples.sh tests/cli/core.sh)
SIM_RUN  = $(if $(CHECK_CUDASIM),'$(CHECK_CUDASIM) --hopper' $(CHECK_CUDASIM) $(SIM_TEST))
RUN_LATE = $(filter-out $(addprefix %/test_,$(LONG)),$(UNIT))
LONG     = engine engine_nano speculate lossless schedule_parallel vision
REPLAYS  = $(foreach r,$(REPLAY),'$(r) tests/fuzz/corpus/$(patsubst $(BUILD)/replay_%,%,$(r))')

check: programs $(if $(SAN),,core lib)
	$(if $(CHECK_CUDASIM),,@echo "no C++ compiler: the simulator of CUDA is left out")
	$(if $(SOAK),$(if $(PYTHON3),,@echo "no python3: the soak is left out"))
	@BUILD=$(BUILD) tests/run.sh $(if $(and $(SOAK),$(PYTHON3)),'bench/soak.py --minutes $(SOAK)') $(SCRIPTS) $(SIM_RUN) $(filter-out $(RUN_LATE),$(UNIT)) \
	    $(if $(CHECK_KERNELS),'$(CHECK_KERNELS) $(ARGS)') $(RUN_LATE) $(REPLAYS)

# Unit tests that need many seconds are not in check-quick.
SLOW = engine engine_nano speculate speculate_head schedule_parallel prompt_file golden golden_vision golden_answers video \
       media_proxy media_loader media_loader_sound disk_media ranks ranks_answers vision vision_file vision_adaptor \
       lossy_run decoder_joint sound_av video_hostile drafter_cascade full_attention tokenizer draft_vocab
QUICK = $(filter-out $(addprefix %/test_,$(SLOW)),$(UNIT))

quick: $(CHECK_KERNELS) $(QUICK) $(REPLAY)
	@BUILD=$(BUILD) tests/run.sh $(if $(CHECK_KERNELS),'$(CHECK_KERNELS) --quick') $(QUICK) $(REPLAYS)

# The build without libraries, kept apart from this one but for the objects that are the same.
core: programs
	@$(AGAIN) CORE=1 CUDA= CUDASIM= BUILD=$(BUILD)/core PLAIN=$(BUILD) $(BUILD)/core/prevue \
	    $(BUILD)/core/make_model

unit: $(UNIT)
	@tests/run.sh $(UNIT)

check-kernels: $(CHECK_KERNELS)
	$(CHECK_KERNELS) $(ARGS)

ifeq ($(CUDA),1)
# The requests of check_engine_cuda are text, for which a CORE build has no tokenizer.
check-cuda: $(BUILD)/check_cuda $(BUILD)/check_gpus_cuda $(if $(filter 1,$(CORE)),,$(BUILD)/check_engine_cuda)
	$(BUILD)/check_cuda --full $(ARGS)
	$(BUILD)/check_gpus_cuda
	$(if $(filter 1,$(CORE)),,$(BUILD)/check_engine_cuda)
else
check-cuda:
	@$(AGAIN) CUDA=1 check-cuda
endif

# Everything compiled for the other architecture (x86_64, aarch64), and tests of it run under qemu:
# a choice of them, or with FULL=1 all.
check-cross:
	@CC='$(CC)' JOBS='$(JOBS)' tools/cross.sh $(if $(filter 1,$(FULL)),full)

# The openai package, from PyPI, as a client of the server.
check-clients: $(BUILD)/prevue $(HELPER)
	@BUILD=$(BUILD) tests/run.sh tests/clients/run.sh

# The Python package as pip installs it, its types, and its tests with numpy (from PyPI).
check-python: $(BUILD)/prevue $(HELPER) lib $(GUIDES)
	@BUILD='$(BUILD)' CC='$(CC)' tests/run.sh tests/packages/pip.sh

# Three servers behind HAProxy and behind nginx, under load; skips a balancer that is not installed.
check-replicas: $(BUILD)/prevue $(HELPER)
	@BUILD='$(BUILD)' tests/replicas/run.sh $(ARGS)

# The page of `prevue serve` in a browser: Chromium, driven by Debian's chromium-driver. OPTIONAL=1:
# a machine that has no browser and cannot install one skips it.
check-page: $(BUILD)/prevue $(HELPER)
	@OPTIONAL='$(OPTIONAL)' BUILD='$(BUILD)' tests/page/run.sh $(ARGS)

fuzz-replay: $(REPLAY)
	@tests/run.sh $(REPLAYS)

# The programs of make test under sanitizers. Fast kernels are those of the plain build: gcc takes minutes to
# instrument them, a step with them would be thirty times as slow, and check_kernels has unreadable pages
# around what they may touch.
asan tsan: export TEST_LEFT_OUT = $(abspath $(BUILD)/not_sanitized.txt)
asan tsan: export TEST_TIMEOUT = 1800
tsan: export TSAN_OPTIONS = suppressions=$(abspath tests/tsan_suppressions.txt)
asan: setup $(BUILD)/not_sanitized.txt
	@$(AGAIN) shared-kernels
	@$(AGAIN) SAN=1 PLAIN=$(BUILD) check

tsan: setup $(BUILD)/not_sanitized.txt
	@$(AGAIN) shared-kernels
	@$(AGAIN) SAN=thread PLAIN=$(BUILD) check

$(BUILD)/not_sanitized.txt: tests/only_all.txt tests/not_sanitized.txt
	@mkdir -p $(@D)
	@cat $^ > $@

shared-kernels: $(filter $(BUILD)/src/kernels/$(ARCH)/% $(BUILD)/src/kernels/ref/%,$(OBJ)) $(SIM_OBJ) $(CHECK_CUDA_CU:%.cu=$(BUILD)/cudasim/%.o)

# The fuzzers (doc/fuzzing.md): build/fuzz/fuzz_*, by clang. FUZZERS: those meant, without "fuzz_".
FUZZERS  ?= $(patsubst tests/fuzz/fuzz_%.c,%,$(FUZZ_SRC))
FUZZ_DIR ?= build/fuzz/long
FUZZ_CC  ?= clang
# Fast kernels are compiled without sanitizers, with which clang takes ten minutes for some of them.
fuzz-programs:
	@$(AGAIN) CC='$(FUZZ_CC)' BUILD=build/fuzz KERNEL_SAN=-fno-sanitize=all fuzz-links \
	    SAN_FLAGS='-fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=all'

fuzz-links: $(FUZZ)

# New inputs go to build/fuzz/found; a crashing one stays in the root, named crash-*.
fuzz: fuzz-programs
	@for f in $(FUZZERS); do \
	    mkdir -p build/fuzz/found/$$f && echo "fuzzing $$f for $(FUZZ_SECONDS) s" && \
	    build/fuzz/fuzz_$$f -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 \
	        -print_final_stats=1 build/fuzz/found/$$f tests/fuzz/corpus/$$f || exit 1; done

# All of them for FUZZ_HOURS on JOBS cores, with a report; findings do not stop it.
fuzz-long: fuzz-programs
	@tests/fuzz/long.sh -t $(FUZZ_HOURS) -j $(JOBS) -o $(FUZZ_DIR) build/fuzz tests/fuzz/corpus $(FUZZERS)

# --- everything else ------------------------------------------------------------------------

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

# The manual page and the completions are printed by the program. After a build for another machine
# NATIVE names a program that this one can run.
NATIVE ?= $(BUILD)/prevue
GUIDES  = $(addprefix $(BUILD)/guides/,prevue.1 prevue.bash _prevue prevue.fish)
$(BUILD)/guides/prevue.1:    PRINT = --man
$(BUILD)/guides/prevue.bash: PRINT = --completions bash
$(BUILD)/guides/_prevue:     PRINT = --completions zsh
$(BUILD)/guides/prevue.fish: PRINT = --completions fish
$(GUIDES): $(NATIVE)
	@mkdir -p $(@D)
	$(call say,GEN)$(NATIVE) help $(PRINT) > $@

HEADERS = prevue.h testing.h about.h
# The small models that the program uses when none is named, and clips to try them with.
DATA    = $(addprefix models/nano,.gguf -draft.gguf -head.gguf) models/README.md \
          $(sort $(wildcard samples/*-frames.mp4)) samples/README.md

install: $(BUILD)/prevue $(HELPER) lib $(GUIDES)
	$(INSTALL) -d $(if $(HELPER),$(DESTDIR)$(libexecdir)/prevue) $(DESTDIR)$(bindir) $(DESTDIR)$(libdir)/pkgconfig $(DESTDIR)$(incdir)/prevue
	$(INSTALL) -m 755 $(BUILD)/prevue $(DESTDIR)$(bindir)/prevue
	$(if $(HELPER),$(INSTALL) -m 755 $(HELPER) $(DESTDIR)$(libexecdir)/prevue/prevue-media)
	$(INSTALL) -m 644 $(addprefix include/prevue/,$(HEADERS)) $(DESTDIR)$(incdir)/prevue
	$(INSTALL) -m 755 $(SO) $(DESTDIR)$(libdir)/libprevue.so.$(VERSION)
	ln -sf libprevue.so.$(VERSION) $(DESTDIR)$(libdir)/libprevue.so.$(SOVERSION)
	ln -sf libprevue.so.$(VERSION) $(DESTDIR)$(libdir)/libprevue.so
	sed -e 's|@prefix@|$(PREFIX)|; s|@libdir@|$(libdir)|; s|@incdir@|$(incdir)|' \
	    -e 's|@version@|$(VERSION)|' prevue.pc.in \
	    > $(DESTDIR)$(libdir)/pkgconfig/prevue.pc
	$(INSTALL) -d $(DESTDIR)$(datadir)/models $(DESTDIR)$(datadir)/samples
	for f in $(DATA); do $(INSTALL) -m 644 $$f $(DESTDIR)$(datadir)/$$f || exit 1; done
	$(INSTALL) -d $(addprefix $(DESTDIR),$(mandir)/man1 $(bashcompdir) $(zshcompdir) $(fishcompdir))
	$(INSTALL) -m 644 $(BUILD)/guides/prevue.1 $(DESTDIR)$(mandir)/man1/prevue.1
	$(INSTALL) -m 644 $(BUILD)/guides/prevue.bash $(DESTDIR)$(bashcompdir)/prevue
	$(INSTALL) -m 644 $(BUILD)/guides/_prevue $(DESTDIR)$(zshcompdir)/_prevue
	$(INSTALL) -m 644 $(BUILD)/guides/prevue.fish $(DESTDIR)$(fishcompdir)/prevue.fish

uninstall:
	rm -f $(DESTDIR)$(bindir)/prevue $(DESTDIR)$(libexecdir)/prevue/prevue-media $(DESTDIR)$(libdir)/libprevue.so* \
	    $(DESTDIR)$(libdir)/pkgconfig/prevue.pc $(addprefix $(DESTDIR)$(incdir)/prevue/,$(HEADERS)) \
	    $(addprefix $(DESTDIR),$(mandir)/man1/prevue.1 $(bashcompdir)/prevue $(zshcompdir)/_prevue $(fishcompdir)/prevue.fish) \
	    $(addprefix $(DESTDIR)$(datadir)/,$(DATA))
	-rmdir $(DESTDIR)$(incdir)/prevue $(DESTDIR)$(libexecdir)/prevue $(addprefix $(DESTDIR)$(datadir)/,models samples) $(DESTDIR)$(datadir)

# A Debian package, $(DEB), from what `make install` installs; neither root nor debhelper is needed.
MULTIARCH = $(shell $(CC) -print-multiarch 2>/dev/null)
DEB_STAGE = $(BUILD)/deb
DEB       = $(BUILD)/prevue_$(VERSION)_$(if $(filter aarch64%,$(MACHINE)),arm64,amd64).deb

deb: $(BUILD)/prevue $(HELPER) lib $(GUIDES)
	@rm -rf $(DEB_STAGE)
	@$(MAKE) --no-print-directory -s install PREFIX=/usr DESTDIR='$(abspath $(DEB_STAGE))' libdir=/usr/lib/$(MULTIARCH) \
	    zshcompdir=/usr/share/zsh/vendor-completions
	@tools/deb.sh '$(abspath $(DEB_STAGE))' $(DEB) $(VERSION) '$(MULTIARCH)'

# The package unpacked, run, compiled against and removed, all below a directory of its own.
check-deb:
	@tools/setup.sh deb
	@$(AGAIN) deb
	@BUILD='$(BUILD)' CC='$(CC)' tests/run.sh 'tests/packages/deb.sh $(DEB)'

clean:
	rm -rf build prevue prevue-media
