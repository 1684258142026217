/* The simulator's host side: memory, streams, events and graphs. Everything is done under one lock,
 * kernels too. */
#include "cudasim/runtime.h"
#include "cudasim/gpu.h"
#include "cudasim/inside.h"
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

typedef std::function<void()> operation;
typedef std::lock_guard<std::recursive_mutex> guard;

struct cudasim_graph {
    std::vector<operation> operations;
};

struct cudasim_stream {
    std::deque<operation> queue;
    std::shared_ptr<cudasim_graph> capture;
    bool origin; /* of the capture */
    int device;
    cudasim_stream() : origin(false), device(0)
    {
    }
};

/* Counts the times that it was recorded, and those that the streams have got to. */
struct cudasim_event {
    long recorded, done;
    int device;
    cudasim_stream *stream;
    std::shared_ptr<cudasim_graph> capture;
    std::chrono::steady_clock::time_point time;
};

static std::recursive_mutex lock;
static std::set<cudasim_stream *> streams;
static cudasim_stream null_stream;
static bool lazy_streams;
static thread_local cudaError_t last_error;
static thread_local int current; /* device */

struct allocation {
    size_t size;
    bool device;
};
static std::map<const char *, allocation> memory;
/* Of kernels that were allowed more, by device. */
static std::map<std::pair<const void *, int>, int> shared_limit;

enum : size_t { SMEM = 48 << 10, SMEM_OPTIN = 227 << 10 };
static const int VERSION = 13000;

static cudasim_gpu first_gpu = {
    VERSION, 1, 8, true, (size_t)4 << 30, -1, true, false, SMEM_OPTIN
};
static cudasim_gpu gpu = first_gpu;

static cudaError_t give(cudaError_t e)
{
    if (e)
        last_error = e;
    return e;
}

static cudasim_stream *of(cudaStream_t s)
{
    return s ? s : &null_stream;
}

static void drain(cudasim_stream *s)
{
    while (!s->queue.empty()) {
        operation op = std::move(s->queue.front());
        s->queue.pop_front();
        op();
    }
}

static void drain_all()
{
    drain(&null_stream);
    for (cudasim_stream *s : std::set<cudasim_stream *>(streams))
        drain(s);
}

static cudaError_t submit(cudaStream_t stream, operation op)
{
    cudasim_stream *s = of(stream);
    if (s->capture) {
        s->capture->operations.push_back(std::move(op));
    } else if (lazy_streams && stream) {
        s->queue.push_back(std::move(op));
    } else {
        drain_all();
        op();
    }
    return cudaSuccess;
}

extern "C" void cudasim_lazy(bool lazy)
{
    guard g(lock);
    drain_all();
    lazy_streams = lazy;
}

void cudasim_hopper()
{
    guard g(lock);
    first_gpu.major = gpu.major = 9;
}

void cudasim_be(const struct cudasim_gpu *other)
{
    guard g(lock);
    gpu = other ? *other : first_gpu;
}

void cudasim_is(struct cudasim_gpu *now)
{
    guard g(lock);
    *now = gpu;
}

extern "C" size_t cudasim_in_use()
{
    guard g(lock);
    size_t sum = 0;
    for (const auto &m : memory)
        sum += m.second.size;
    return sum;
}

cudaError_t cudasim_launch_body(cudasim_site site, const void *kernel, dim3 grid, dim3 block,
                                size_t smem, cudaStream_t stream, operation body)
{
    guard g(lock);
    auto limit = shared_limit.find({ kernel, current });
    size_t allowed = limit == shared_limit.end() ? SMEM : (size_t)limit->second;
    if (!grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z || grid.y > 65535 ||
        grid.z > 65535 || grid.x > 2147483647u || block.z > 64 ||
        (size_t)block.x * block.y * block.z > 1024 || grid.x % (unsigned)site.together)
        return give(cudaErrorInvalidConfiguration);
    if (smem > allowed)
        return give(cudaErrorInvalidValue);
    if (stream && stream->device != current) {
        fprintf(stderr, "CUDA simulator: a launch on a stream of device %d, device %d is current\n",
                stream->device, current);
        return give(cudaErrorInvalidResourceHandle);
    }
    if (!gpu.code)
        return give(cudaErrorNoKernelImageForDevice);
    return submit(stream, [=] { cudasim_run_grid(site, grid, block, smem, body); });
}

/* ---- memory ---- */

/* The allocation that p .. p + size lies in, or NULL. */
static const allocation *find(const void *p, size_t size)
{
    auto it = memory.upper_bound((const char *)p);
    if (it == memory.begin())
        return nullptr;
    --it;
    size_t at = (size_t)((const char *)p - it->first);
    return at <= it->second.size && size <= it->second.size - at ? &it->second : nullptr;
}

static bool on_device(const void *p, size_t size)
{
    const allocation *a = find(p, size);
    return a && a->device;
}

static cudaError_t take(void **p, size_t size, bool device)
{
    guard g(lock);
    *p = nullptr;
    if (!size)
        return cudaSuccess;
    if (gpu.allocations == 0 || size > gpu.memory || cudasim_in_use() > gpu.memory - size ||
        posix_memalign(p, 256, size))
        return give(cudaErrorMemoryAllocation);
    gpu.allocations -= gpu.allocations > 0;
    memset(*p, 0xff, size);
    memory[(const char *)*p] = { size, device };
    return cudaSuccess;
}

static cudaError_t give_back(void *p, bool device)
{
    guard g(lock);
    if (!p)
        return cudaSuccess;
    drain_all();
    auto it = memory.find((const char *)p);
    if (it == memory.end() || it->second.device != device)
        return give(cudaErrorInvalidValue);
    memory.erase(it);
    free(p);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t size)
{
    return take(p, size, true);
}

cudaError_t cudaFree(void *p)
{
    return give_back(p, true);
}

cudaError_t cudaMallocHost(void **p, size_t size, unsigned)
{
    return take(p, size, false);
}

cudaError_t cudaHostAlloc(void **p, size_t size, unsigned)
{
    return take(p, size, false);
}

cudaError_t cudaFreeHost(void *p)
{
    return give_back(p, false);
}

static void copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                      size_t height)
{
    for (size_t i = 0; i < height; i++)
        memmove((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
}

/* Pinned memory is read when the stream gets there, other memory of the host before the call
 * returns; and a copy to that is waited for. */
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t s)
{
    guard g(lock);
    if (!width || !height)
        return cudaSuccess;
    size_t to_size = to_pitch * (height - 1) + width, from_size = from_pitch * (height - 1) + width;
    bool to_gpu = on_device(to, to_size), from_gpu = on_device(from, from_size);
    bool to_named = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_named = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind != cudaMemcpyDefault && (to_gpu != to_named || from_gpu != from_named)) {
        fprintf(stderr, "CUDA simulator: a copy of kind %d from %s to %s memory\n", (int)kind,
                from_gpu ? "device" : "host", to_gpu ? "device" : "host");
        return give(cudaErrorInvalidValue);
    }
    bool from_pageable = !from_gpu && !find(from, from_size);
    bool to_pageable = !to_gpu && !find(to, to_size);
    if (from_pageable && !of(s)->capture) {
        auto held = std::make_shared<std::vector<char>>(width * height);
        copy_rows(held->data(), width, from, from_pitch, width, height);
        return submit(s, [=] { copy_rows(to, to_pitch, held->data(), width, width, height); });
    }
    submit(s, [=] { copy_rows(to, to_pitch, from, from_pitch, width, height); });
    if (to_pageable && !of(s)->capture)
        drain(of(s));
    return cudaSuccess;
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind)
{
    return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, nullptr);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, cudaMemcpyKind kind,
                            cudaStream_t s)
{
    return cudaMemcpy2DAsync(to, size, from, size, size, 1, kind, s);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, cudaMemcpyKind kind)
{
    return cudaMemcpyAsync(to, from, size, kind, nullptr);
}

cudaError_t cudaMemcpy3DPeerAsync(const cudaMemcpy3DPeerParms *p, cudaStream_t s)
{
    if (p->extent.depth != 1 || p->srcDevice >= gpu.gpus || p->dstDevice >= gpu.gpus)
        return give(cudaErrorInvalidValue);
    return cudaMemcpy2DAsync(p->dstPtr.ptr, p->dstPtr.pitch, p->srcPtr.ptr, p->srcPtr.pitch,
                             p->extent.width, p->extent.height, cudaMemcpyDeviceToDevice, s);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t size, cudaStream_t s)
{
    if (to_device >= gpu.gpus || from_device >= gpu.gpus)
        return give(cudaErrorInvalidDevice);
    return cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToDevice, s);
}

cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t size)
{
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, size, nullptr);
}

cudaError_t cudaMemsetAsync(void *p, int byte, size_t size, cudaStream_t s)
{
    guard g(lock);
    if (size && !on_device(p, size))
        return give(cudaErrorInvalidValue);
    return submit(s, [=] { memset(p, byte, size); });
}

cudaError_t cudaMemset(void *p, int byte, size_t size)
{
    return cudaMemsetAsync(p, byte, size, nullptr);
}

/* ---- device ---- */

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
    case cudaSuccess:
        return "no error";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInvalidConfiguration:
        return "invalid configuration argument";
    case cudaErrorInsufficientDriver:
        return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoKernelImageForDevice:
        return "no kernel image is available for execution on the device";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
        return "invalid device ordinal";
    case cudaErrorNotReady:
        return "device not ready";
    case cudaErrorStreamCaptureUnsupported:
        return "operation not permitted when stream is capturing";
    default:
        return "unknown error";
    }
}

const char *cudaGetErrorName(cudaError_t e)
{
    return cudaGetErrorString(e);
}

cudaError_t cudaGetLastError()
{
    cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError()
{
    return last_error;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    guard g(lock);
    *n = 0;
    if (gpu.driver < VERSION)
        return give(cudaErrorInsufficientDriver);
    if (gpu.gpus < 1)
        return give(cudaErrorNoDevice);
    *n = gpu.gpus;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    guard g(lock);
    if (device < 0 || device >= gpu.gpus)
        return give(cudaErrorInvalidDevice);
    current = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int other)
{
    guard g(lock);
    *can = device != other && gpu.peers;
    return device < gpu.gpus && other < gpu.gpus ? cudaSuccess : give(cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned)
{
    return other < gpu.gpus ? cudaSuccess : give(cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    if (device < 0 || device >= gpu.gpus)
        return give(cudaErrorInvalidDevice);
    *p = {};
    snprintf(p->name, sizeof p->name, "CUDA simulator");
    p->totalGlobalMem = gpu.memory;
    p->sharedMemPerBlock = SMEM;
    p->sharedMemPerBlockOptin = gpu.shared;
    p->sharedMemPerMultiprocessor = gpu.shared + 1024;
    p->regsPerBlock = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->major = gpu.major;
    p->minor = 0;
    p->multiProcessorCount = 4;
    p->l2CacheSize = 4 << 20;
    p->canMapHostMemory = p->concurrentKernels = p->asyncEngineCount = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr a, int device)
{
    cudaDeviceProp p;
    cudaError_t e = cudaGetDeviceProperties(&p, device);
    if (e)
        return e;
    switch (a) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = p.maxThreadsPerBlock;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = p.multiProcessorCount;
        break;
    case cudaDevAttrL2CacheSize:
        *value = p.l2CacheSize;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = p.major;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = p.minor;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (int)p.sharedMemPerBlockOptin;
        break;
    default:
        return give(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize()
{
    guard g(lock);
    for (const cudasim_stream *s : streams)
        if (s->capture)
            return give(cudaErrorStreamCaptureUnsupported);
    drain_all();
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *all)
{
    guard g(lock);
    *all = gpu.memory;
    *left = gpu.memory > cudasim_in_use() ? gpu.memory - cudasim_in_use() : 0;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = gpu.driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = VERSION;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute a, int value)
{
    guard g(lock);
    if (a != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return cudaSuccess;
    if (value < 0 || (size_t)value > gpu.shared)
        return give(cudaErrorInvalidValue);
    shared_limit[{ kernel, current }] = value;
    return cudaSuccess;
}

/* Kernels that only a Hopper GPU has a body of have next to no registers on others. */
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *)
{
    guard g(lock);
    attributes->numRegs = gpu.major >= 9 ? 128 : 16;
    return cudaSuccess;
}

/* ---- streams and events ---- */

cudaError_t cudaStreamCreate(cudaStream_t *s)
{
    return cudaStreamCreateWithPriority(s, 0, 0);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    return cudaStreamCreateWithPriority(s, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned, int)
{
    guard g(lock);
    *s = new cudasim_stream();
    (*s)->device = current;
    streams.insert(*s);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    guard g(lock);
    if (!streams.count(s))
        return give(cudaErrorInvalidResourceHandle);
    drain(s);
    streams.erase(s);
    delete s;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    guard g(lock);
    if (of(s)->capture)
        return give(cudaErrorStreamCaptureUnsupported);
    if (s)
        drain(s);
    else
        drain_all();
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
    return cudaStreamSynchronize(s);
}

/* Let the event's stream go on until it has recorded `count`. */
static void wait_for(cudasim_event *e, long count)
{
    while (e->done < count && e->stream && !e->stream->queue.empty()) {
        operation op = std::move(e->stream->queue.front());
        e->stream->queue.pop_front();
        op();
    }
}

void cudasim_between(cudaStream_t from_stream, cudaStream_t to_stream, void *to, const void *from,
                     size_t size)
{
    guard g(lock);
    static std::deque<cudasim_event> events; /* whose places stay */
    cudasim_event *ready = &events.emplace_back(), *there = &events.emplace_back();
    if (from_stream->capture) { /* a graph runs in the order of its calls */
        submit(to_stream, [=] { memmove(to, from, size); });
        return;
    }
    ready->stream = from_stream;
    there->stream = to_stream;
    ready->recorded = there->recorded = 1;
    submit(from_stream, [=] { ready->done = 1; });
    submit(to_stream, [=] {
        wait_for(ready, 1);
        memmove(to, from, size);
        there->done = 1;
    });
    submit(from_stream, [=] { wait_for(there, 1); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    guard g(lock);
    if (e->capture) {
        if (!of(s)->capture)
            of(s)->capture = e->capture;
        return of(s)->capture == e->capture ? cudaSuccess : give(cudaErrorStreamCaptureUnsupported);
    }
    long count = e->recorded;
    return submit(s, [=] { wait_for(e, count); });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, void (*f)(void *), void *arg)
{
    guard g(lock);
    return submit(s, [=] { f(arg); });
}

cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    *e = new cudasim_event();
    (*e)->device = current;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    return cudaEventCreate(e);
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    guard g(lock);
    drain_all();
    delete e;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    guard g(lock);
    if (s && s->device != e->device)
        return give(cudaErrorInvalidResourceHandle);
    if (of(s)->capture) {
        e->capture = of(s)->capture;
        return cudaSuccess;
    }
    e->capture = nullptr;
    e->stream = of(s);
    long count = ++e->recorded;
    return submit(s, [=] {
        e->done = count;
        e->time = std::chrono::steady_clock::now();
    });
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    guard g(lock);
    if (e->capture)
        return give(cudaErrorStreamCaptureUnsupported);
    wait_for(e, e->recorded);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    return cudaEventSynchronize(e);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b)
{
    guard g(lock);
    if (!a->recorded || !b->recorded)
        return give(cudaErrorInvalidResourceHandle);
    if (a->done < a->recorded || b->done < b->recorded)
        return give(cudaErrorNotReady);
    *ms = std::chrono::duration<float, std::milli>(b->time - a->time).count();
    return cudaSuccess;
}

/* ---- graphs ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode)
{
    guard g(lock);
    if (!s || s->capture)
        return give(cudaErrorStreamCaptureUnsupported);
    s->capture = std::make_shared<cudasim_graph>();
    s->origin = true;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
    guard g(lock);
    *graph = nullptr;
    if (!s || !s->capture || !s->origin)
        return give(cudaErrorStreamCaptureUnsupported);
    std::shared_ptr<cudasim_graph> captured = s->capture;
    for (cudasim_stream *other : streams)
        if (other->capture == captured) {
            other->capture = nullptr;
            other->origin = false;
        }
    *graph = new cudasim_graph(*captured);
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus *status)
{
    guard g(lock);
    *status = of(s)->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    *exec = new cudasim_graph(*graph);
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
    guard g(lock);
    return submit(s, [ops = exec->operations] {
        for (const operation &op : ops)
            op();
    });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}
