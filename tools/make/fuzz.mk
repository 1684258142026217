# The fuzzers (doc/fuzzing.md): build/fuzz/fuzz_*, by clang. replay_* run the kept inputs, by any compiler.

FUZZ_SECONDS ?= 60
FUZZ_HOURS ?= 1
FUZZ_SRC    := $(sort $(wildcard tests/fuzz/fuzz_*.c))
REPLAY    = $(patsubst tests/fuzz/fuzz_%.c,$(BUILD)/replay_%,$(FUZZ_SRC))
FUZZ      = $(patsubst tests/fuzz/fuzz_%.c,$(BUILD)/fuzz_%,$(FUZZ_SRC))
REPLAYS  = $(foreach r,$(REPLAY),'$(r) tests/fuzz/corpus/$(patsubst $(BUILD)/replay_%,%,$(r))')
ALL_OBJ  += $(call objects,$(FUZZ_SRC) tests/fuzz/replay.c)

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

.PHONY: fuzz fuzz-long fuzz-programs fuzz-links fuzz-replay
fuzz-replay: $(REPLAY)
	@tests/run.sh $(REPLAYS)

# FUZZERS: those meant, without "fuzz_".
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
