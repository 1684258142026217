/* Simulator of CUDA, part 2: the host's functions. Device memory is the host's, filled with 0xff
 * when it is given out. A stream does at once what it is told, or, after cudasim_lazy(true), as
 * late as it may: when somebody waits for it. A captured stream does nothing; its graph does. */
#ifndef PV_TESTS_CUDASIM_RUNTIME_H
#define PV_TESTS_CUDASIM_RUNTIME_H

#include "cudasim/types.h"
#include <functional>

enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorPeerAccessAlreadyEnabled = 704,
    cudaErrorLaunchFailure = 719,
    cudaErrorNotSupported = 801,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorUnknown = 999
};
typedef enum cudaError cudaError_t;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
};

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9
};

enum { cudaSharedmemCarveoutMaxShared = 100 };

struct cudaFuncAttributes {
    int numRegs;
};

enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};

enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal,
    cudaStreamCaptureModeThreadLocal,
    cudaStreamCaptureModeRelaxed
};
enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone,
    cudaStreamCaptureStatusActive,
    cudaStreamCaptureStatusInvalidated
};

enum : unsigned {
    cudaStreamDefault = 0,
    cudaStreamNonBlocking = 1,
    cudaEventDefault = 0,
    cudaEventBlockingSync = 1,
    cudaEventDisableTiming = 2,
    cudaHostAllocDefault = 0,
    cudaHostAllocPortable = 1,
    cudaHostAllocMapped = 2,
    cudaHostAllocWriteCombined = 4
};

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem;
    size_t sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
    int regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsPerMultiProcessor;
    int major, minor, multiProcessorCount;
    int l2CacheSize, persistingL2CacheMaxSize;
    int integrated, canMapHostMemory, concurrentKernels, asyncEngineCount;
    int pciBusID, pciDeviceID, pciDomainID;
};

struct cudasim_stream;
struct cudasim_event;
struct cudasim_graph;
typedef cudasim_stream *cudaStream_t;
typedef cudasim_event *cudaEvent_t;
typedef cudasim_graph *cudaGraph_t;
typedef cudasim_graph *cudaGraphExec_t;

const char *cudaGetErrorString(cudaError_t e);
const char *cudaGetErrorName(cudaError_t e);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr a, int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaMemGetInfo(size_t *left, size_t *all);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute a, int value);
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *kernel);

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int other);
cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned flags);

cudaError_t cudaMalloc(void **p, size_t size);
cudaError_t cudaFree(void *p);
cudaError_t cudaMallocHost(void **p, size_t size, unsigned flags = 0);
cudaError_t cudaHostAlloc(void **p, size_t size, unsigned flags);
cudaError_t cudaFreeHost(void *p);
template <class T> static inline cudaError_t cudaMalloc(T **p, size_t size)
{
    return cudaMalloc((void **)(void *)p, size);
}
template <class T> static inline cudaError_t cudaMallocHost(T **p, size_t size, unsigned flags = 0)
{
    return cudaMallocHost((void **)(void *)p, size, flags);
}
template <class T> static inline cudaError_t cudaHostAlloc(T **p, size_t size, unsigned flags)
{
    return cudaHostAlloc((void **)(void *)p, size, flags);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, cudaMemcpyKind kind,
                            cudaStream_t s = nullptr);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t s = nullptr);
cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind);
cudaError_t cudaMemset(void *p, int byte, size_t size);
struct cudaPitchedPtr {
    void *ptr;
    size_t pitch, xsize, ysize;
};
struct cudaExtent {
    size_t width, height, depth;
};
struct cudaPos {
    size_t x, y, z;
};
struct cudaMemcpy3DPeerParms {
    struct cudaPos srcPos, dstPos;
    struct cudaPitchedPtr srcPtr, dstPtr;
    int srcDevice, dstDevice;
    struct cudaExtent extent;
};
static inline cudaPitchedPtr make_cudaPitchedPtr(void *p, size_t pitch, size_t x, size_t y)
{
    return cudaPitchedPtr{ p, pitch, x, y };
}
static inline cudaExtent make_cudaExtent(size_t width, size_t height, size_t depth)
{
    return cudaExtent{ width, height, depth };
}
cudaError_t cudaMemcpy3DPeerAsync(const cudaMemcpy3DPeerParms *p, cudaStream_t s);
cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t size);
cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t size, cudaStream_t s);
cudaError_t cudaMemsetAsync(void *p, int byte, size_t size, cudaStream_t s = nullptr);

cudaError_t cudaStreamCreate(cudaStream_t *s);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamQuery(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags = 0);
cudaError_t cudaLaunchHostFunc(cudaStream_t s, void (*f)(void *), void *arg);

cudaError_t cudaEventCreate(cudaEvent_t *e);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaEventQuery(cudaEvent_t e);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b);

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g);
cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus *status);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t g,
                                 unsigned long long flags = 0);
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t s);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphDestroy(cudaGraph_t g);

/* ---- the simulator's own ---- */

/* Streams wait with their work as long as they may (true), or do it at once (as at the start). */
extern "C" void cudasim_lazy(bool lazy);
/* Bytes of device and pinned memory that are not freed. */
extern "C" size_t cudasim_in_use();

/* Where a kernel was launched. */
struct cudasim_site {
    const char *file;
    int line;
    const char *text;
    int together; /* blocks of a cluster: 1 or 2 */
};

cudaError_t cudasim_launch_body(cudasim_site site, const void *kernel, dim3 grid, dim3 block,
                                size_t smem, cudaStream_t stream, std::function<void()> body);

/* nccl.cpp: the calls of NCCL that the CUDA files use (kernels/cuda/nccl.h). As in the library,
 * calls of a group happen together, and every GPU makes its own. */
int cudasim_nccl_init_all(void **comms, int n, const int *devices);
int cudasim_nccl_destroy(void *comm);
int cudasim_nccl_group_start();
int cudasim_nccl_group_end();
int cudasim_nccl_broadcast(const void *from, void *to, size_t count, int type, int root, void *comm,
                           cudaStream_t s);
int cudasim_nccl_send(const void *from, size_t count, int type, int peer, void *comm,
                      cudaStream_t s);
int cudasim_nccl_recv(void *to, size_t count, int type, int peer, void *comm, cudaStream_t s);

/* runtime.cpp: a copy from what a stream has made to where another one goes on from; both wait for
 * it. */
void cudasim_between(cudaStream_t from_stream, cudaStream_t to_stream, void *to, const void *from,
                     size_t size);

#endif
