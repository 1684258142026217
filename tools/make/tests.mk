# Programs of the tests and what runs them (doc/testing.md).

UNIT_SRC    := $(sort $(wildcard tests/unit/test_*.c))
# The checker of kernels has two programs, one for CPUs and one for CUDA.
CHECK_TOOLS     = tests/kernels/check_tools.c
CHECK_CUDA_SRC := $(sort $(wildcard tests/kernels/check_cuda*.c))
CHECK_CUDA_CU  := tests/kernels/hopper_sums.cu
KERNELS_SRC    := $(filter-out $(CHECK_CUDA_SRC),$(sort $(wildcard tests/kernels/*.c)))
GOLDEN_SRC  := $(sort $(wildcard tests/golden/*.c)) # programs for tools/golden
SIM_TEST_SRC := $(sort $(wildcard tests/cudasim/test_*.c)) # unit tests over the simulator of CUDA
GPU_SRC     := $(sort $(wildcard tests/gpu/*.c)) # programs that need a GPU
UNIT      = $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(UNIT_SRC))
GOLDEN    = $(patsubst tests/golden/%.c,$(BUILD)/%,$(GOLDEN_SRC))
CHECK_KERNELS = $(if $(KERNELS_SRC),$(BUILD)/check_kernels)
# Needs a C++ compiler, which nothing else does.
HAVE_CXX     := $(shell command -v $(firstword $(CXX)) 2>/dev/null)
CHECK_CUDASIM = $(if $(HAVE_CXX),$(BUILD)/check_cudasim)
# The program with MPI in the place of none, for the tests, where Open MPI is installed.
HAVE_MPI     := $(shell $(PKG_CONFIG) --exists ompi-c 2>/dev/null && command -v mpirun 2>/dev/null)
PREVUE_MPI    = $(if $(HAVE_MPI),$(if $(MPI)$(SAN)$(CORE),,$(BUILD)/prevue_mpi))
SIM_TEST      = $(if $(HAVE_CXX),$(patsubst tests/cudasim/%.c,$(BUILD)/%,$(SIM_TEST_SRC)))
ALL_OBJ      += $(call objects,$(UNIT_SRC) $(KERNELS_SRC) $(GOLDEN_SRC) $(SIM_TEST_SRC) $(GPU_SRC) $(CHECK_CUDA_SRC) \
                  tests/server/serve_client.c tests/server/hostile_client.c) $(SIM_OBJ)

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

# And of the command line's and the laboratory's.
CLI_UNIT = machine known_models multiple_choice
LAB_UNIT = bench_stats
$(foreach t,$(CLI_UNIT),$(BUILD)/tests/unit/test_$(t).o): TEST_INC = -Itests -Icli
$(foreach t,$(CLI_UNIT),$(eval $(BUILD)/unit/test_$(t): $(BUILD)/cli/$(t).o))
$(foreach t,$(LAB_UNIT),$(BUILD)/tests/unit/test_$(t).o): TEST_INC = -Itests -Ilab -Icli
$(foreach t,$(LAB_UNIT),$(eval $(BUILD)/unit/test_$(t): $(BUILD)/lab/$(t).o))
$(BUILD)/unit/test_bench_stats: $(BUILD)/cli/figures.o

# Tests that use rows of the laboratory.
ROWS_UNIT = view view_specvlm_grid view_specvlm_draft drafting drafter_cascade method_rules
$(foreach t,$(ROWS_UNIT),$(BUILD)/tests/unit/test_$(t).o): TEST_INC = -Itests -Ilab/rows
$(BUILD)/tests/cudasim/test_engine_cudasim.o: TEST_INC = -Itests -Ilab/rows
$(foreach t,$(ROWS_UNIT),$(BUILD)/unit/test_$(t)) $(BUILD)/test_engine_cudasim: $(call objects,$(LAB_ROWS))

# And of what decodes, with FFmpeg; fuzz_boxes runs fuzz_video's with other changes.
DECODING = $(foreach t,video video_hostile video_memory media_proxy sound_av media_loader_sound disk_media shared_media,$(BUILD)/unit/test_$(t)) \
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

# --- running them ---------------------------------------------------------------------------

.PHONY: test check check-all check-quick quick objects core-programs programs core unit check-kernels check-cuda \
        check-cross check-clients check-python check-replicas check-page asan tsan shared-kernels
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
core-programs: $(BUILD)/prevue $(BUILD)/prevue-lab $(HELPER) $(CHECK_KERNELS) $(CHECK_CUDASIM) $(BENCH) $(BUILD)/serve_client $(BUILD)/hostile_client
programs: core-programs $(PREVUE_MPI) $(UNIT) $(SIM_TEST) $(REPLAY) $(GOLDEN)

PYTHON3 := $(shell command -v python3)

# The longest first, so that all cores are busy until the end.
SCRIPTS  = 'tests/cli/run.sh 1/2' 'tests/cli/run.sh 2/2' tests/server/run.sh $(if $(SAN),,tests/packages/python.sh tests/packages/examples.sh tests/cli/core.sh)
SIM_RUN  = $(if $(CHECK_CUDASIM),'$(CHECK_CUDASIM) --hopper' $(CHECK_CUDASIM) $(SIM_TEST))
RUN_LATE = $(filter-out $(addprefix %/test_,$(LONG)),$(UNIT))
LONG     = engine engine_nano speculate lossless schedule_parallel vision

check: programs $(if $(SAN),,core lib)
	$(if $(CHECK_CUDASIM),,@echo "no C++ compiler: the simulator of CUDA is left out")
	$(if $(SOAK),$(if $(PYTHON3),,@echo "no python3: the soak is left out"))
	@BUILD=$(BUILD) tests/run.sh $(if $(and $(SOAK),$(PYTHON3)),'bench/soak.py --minutes $(SOAK)') $(SCRIPTS) $(SIM_RUN) $(filter-out $(RUN_LATE),$(UNIT)) \
	    $(if $(CHECK_KERNELS),'$(CHECK_KERNELS) $(ARGS)') $(RUN_LATE) $(REPLAYS)

# Unit tests that need many seconds are not in check-quick.
SLOW = engine engine_nano speculate speculate_head schedule_parallel prompt_file golden golden_vision golden_answers video \
       media_proxy media_loader media_loader_sound disk_media shared_media ranks ranks_answers vision vision_file vision_adaptor \
       lossy_run decoder_joint sound_av video_hostile drafter_cascade full_attention tokenizer draft_vocab
QUICK = $(filter-out $(addprefix %/test_,$(SLOW)),$(UNIT))

quick: $(CHECK_KERNELS) $(QUICK) $(REPLAY)
	@BUILD=$(BUILD) tests/run.sh $(if $(CHECK_KERNELS),'$(CHECK_KERNELS) --quick') $(QUICK) $(REPLAYS)

# The build without libraries, kept apart from this one but for the objects that are the same.
core: programs
	@$(AGAIN) CORE=1 CUDA= CUDASIM= BUILD=$(BUILD)/core PLAIN=$(BUILD) $(BUILD)/core/prevue $(BUILD)/core/prevue-lab \
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
