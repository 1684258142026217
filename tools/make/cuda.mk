# The CUDA device, by nvcc (CUDA=1), and the simulator of the tests, which compiles the same files as C++.

CUDA_HOME ?= /usr/local/cuda
NVCC    ?= $(if $(shell command -v nvcc 2>/dev/null),nvcc,$(CUDA_HOME)/bin/nvcc)
CUDA_SRC := $(sort $(wildcard src/kernels/cuda/*.cu))
SIM_SRC  := $(CUDA_SRC) $(sort $(wildcard tests/cudasim/*.cpp))
SIM_OBJ  := $(patsubst %,$(BUILD)/cudasim/%.o,$(basename $(SIM_SRC)))

# SASS for the GPUs that are common, and PTX from which the driver makes what newer ones need.
# Kernels that use what only Hopper has are left out of the rest by the files themselves.
CUDA_CODE ?= -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_89,code=sm_89 \
             -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_80,code=compute_80
NVCC_FLAGS = -O3 -std=c++17 -Iinclude -Isrc $(CUDA_CODE) -Xcompiler -fPIC,-fvisibility=hidden
CUDA_DIRS := $(wildcard $(CUDA_HOME)/lib64 $(CUDA_HOME)/lib)

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
