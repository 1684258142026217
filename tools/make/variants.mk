# Kinds of build, each with its own tree of objects, and what they link: included by the Makefile.

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
