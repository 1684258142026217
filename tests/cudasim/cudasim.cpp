/* The simulator's threads: fibres of one block, or of a cluster of two, at a time, their barriers,
 * what the lanes of a warp do together, and the instructions of launch.h. One launch runs at a
 * time, whichever of the host's threads it comes from, so that the state here is the launch's. */
#include "cudasim/cudasim.h"
#include "cudasim/inside.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <vector>
#if !defined __x86_64__ && !defined __aarch64__
#include <ucontext.h>
#endif

#ifdef __SANITIZE_ADDRESS__
#define CUDASIM_ASAN 1
#elif defined __has_feature
#if __has_feature(address_sanitizer)
#define CUDASIM_ASAN 1
#endif
#endif
#ifdef CUDASIM_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#ifdef __SANITIZE_THREAD__
#define CUDASIM_TSAN 1
#elif defined __has_feature
#if __has_feature(thread_sanitizer)
#define CUDASIM_TSAN 1
#endif
#endif
#ifdef CUDASIM_TSAN
#include <sanitizer/tsan_interface.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

/* ---- fibres ---- */

enum {
#ifdef CUDASIM_ASAN
    STACK = 512 * 1024,
#else
    STACK = 256 * 1024,
#endif
    GUARD = 64 * 1024, /* below the stack, a page of any size */
    /* Tops of stacks that lie a power of two apart share few sets of a cache. */
    APART = 37 * 64,
    COLOURS = 24,
    LAST_FRAMES = 8 * 1024,
    MAX_BLOCKS = 2, /* of a cluster */
    MAX_THREADS = 1024 * MAX_BLOCKS,
    MAX_WARPS = MAX_THREADS / 32,
    MAX_COPIES = 256 /* of a thread, open at a time */
};

enum state { READY, AT_BARRIER, IN_WARP, ENDED };

struct copy {
    void *to;
    const void *from;
    int bytes, group;
};

struct fibre {
    void *sp;
    char *stack; /* above the guard */
    char *top;   /* where it begins to be used */
#if !defined __x86_64__ && !defined __aarch64__
    ucontext_t context;
#endif
#ifdef CUDASIM_TSAN
    void *tsan;
#endif
    void *fake; /* of the address sanitizer */
    uint3 index, block_index;
    int number, rank; /* in the cluster; rank: of its block */
    enum state state;
    /* what it waits for */
    const char *where;
    int line;
    bool predicate;
    int answer;
    cudasim_together together;
    unsigned mask;
    /* copies under way */
    std::vector<copy> copies;
    int group;
};

struct warp {
    unsigned alive;            /* lanes that have not ended */
    unsigned waiting;          /* lanes in an operation, with its arguments */
    bool mixed;                /* not all of them in the same */
    cudasim_together together; /* of the first that came */
    unsigned mask;
    void *arg[32];
};

static struct {
    cudasim_site site;
    const std::function<void()> *body;
    int n; /* threads of all blocks */
    struct {
        void *shared;
        int alive, at_barrier;
        const char *file; /* where those who wait at a barrier do */
        int line;
    } of[MAX_BLOCKS];
    warp warps[MAX_WARPS];
    bool downwards;            /* the order in which threads run */
    bool ahead;                /* a warp runs as far as it can before the next does */
    fibre *queue[MAX_THREADS]; /* a ring */
    unsigned first, queued;
    fibre *now;
    long long clock;
} block;

static fibre fibres[MAX_THREADS]; /* those with a stack have been used */
static fibre host;                /* where a block was started from */

void cudasim_fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "CUDA simulator: ");
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, "\n  kernel %s:%d launch(%s)\n", block.site.file ? block.site.file : "?",
            block.site.line, block.site.text ? block.site.text : "?");
    fprintf(stderr, "  block %u,%u,%u of %u,%u,%u, thread %u,%u,%u of %u,%u,%u\n", blockIdx.x,
            blockIdx.y, blockIdx.z, gridDim.x, gridDim.y, gridDim.z, threadIdx.x, threadIdx.y,
            threadIdx.z, blockDim.x, blockDim.y, blockDim.z);
    fflush(stderr);
    abort();
}

#if defined __x86_64__ || defined __aarch64__
/* Save the registers that a call keeps and the stack, and go on where `to` was saved. */
extern "C" void cudasim_switch(void **from, void *to);
#endif
#ifdef __x86_64__
asm(".text\n"
    ".p2align 4\n"
    ".globl cudasim_switch\n"
    ".hidden cudasim_switch\n"
    ".type cudasim_switch, @function\n"
    "cudasim_switch:\n"
    "    pushq %rbp\n"
    "    pushq %rbx\n"
    "    pushq %r12\n"
    "    pushq %r13\n"
    "    pushq %r14\n"
    "    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n"
    "    popq %r14\n"
    "    popq %r13\n"
    "    popq %r12\n"
    "    popq %rbx\n"
    "    popq %rbp\n"
    "    ret\n"
    ".size cudasim_switch, .-cudasim_switch\n");
enum { SAVED = 6, RETURN = 6, FRAME = 8 }; /* words */
#elif defined __aarch64__
asm(".text\n"
    ".p2align 4\n"
    ".globl cudasim_switch\n"
    ".hidden cudasim_switch\n"
    ".type cudasim_switch, %function\n"
    "cudasim_switch:\n"
    "    sub sp, sp, #160\n"
    "    stp x19, x20, [sp]\n"
    "    stp x21, x22, [sp, #16]\n"
    "    stp x23, x24, [sp, #32]\n"
    "    stp x25, x26, [sp, #48]\n"
    "    stp x27, x28, [sp, #64]\n"
    "    stp x29, x30, [sp, #80]\n"
    "    stp d8, d9, [sp, #96]\n"
    "    stp d10, d11, [sp, #112]\n"
    "    stp d12, d13, [sp, #128]\n"
    "    stp d14, d15, [sp, #144]\n"
    "    mov x9, sp\n"
    "    str x9, [x0]\n"
    "    mov sp, x1\n"
    "    ldp x19, x20, [sp]\n"
    "    ldp x21, x22, [sp, #16]\n"
    "    ldp x23, x24, [sp, #32]\n"
    "    ldp x25, x26, [sp, #48]\n"
    "    ldp x27, x28, [sp, #64]\n"
    "    ldp x29, x30, [sp, #80]\n"
    "    ldp d8, d9, [sp, #96]\n"
    "    ldp d10, d11, [sp, #112]\n"
    "    ldp d12, d13, [sp, #128]\n"
    "    ldp d14, d15, [sp, #144]\n"
    "    add sp, sp, #160\n"
    "    ret\n"
    ".size cudasim_switch, .-cudasim_switch\n");
enum { SAVED = 20, RETURN = 11, FRAME = 20 };
#endif

static void fibre_main();

/* The sanitizer is told of the stack that is about to be used, and that it is used. */
static void leave_for(fibre *from, fibre *to, bool for_good)
{
#ifdef CUDASIM_ASAN
    __sanitizer_start_switch_fiber(for_good ? nullptr : &from->fake, to->stack,
                                   to == &host ? (size_t)to->line : (size_t)STACK);
#endif
#ifdef CUDASIM_TSAN
    __tsan_switch_to_fiber(to->tsan, 0);
#endif
    (void)from, (void)to, (void)for_good;
}

static void arrived(fibre *at)
{
#ifdef CUDASIM_ASAN
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(at->fake, &bottom, &size);
    if (block.now == &host || !host.stack) { /* nobody else tells the host's own stack */
        host.stack = (char *)bottom;
        host.line = (int)size;
    }
#endif
    (void)at;
}

static void go(fibre *from, fibre *to, bool for_good)
{
    block.now = to;
    threadIdx = to->index;
    blockIdx = to->block_index;
    leave_for(from, to, for_good);
#if defined __x86_64__ || defined __aarch64__
    cudasim_switch(&from->sp, to->sp);
#else
    swapcontext(&from->context, &to->context);
#endif
    arrived(from);
}

static void fibre_open(fibre *f)
{
    void *p = mmap(nullptr, STACK + GUARD, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED || mprotect(p, GUARD, PROT_NONE))
        cudasim_fail("no memory for the stack of a thread");
    f->stack = (char *)p + GUARD;
    f->number = (int)(f - fibres);
    f->top = f->stack + STACK - f->number % COLOURS * APART;
#ifdef CUDASIM_TSAN
    f->tsan = __tsan_create_fiber(0);
#endif
}

/* A fibre at the start of the kernel. */
static void fibre_reset(fibre *f)
{
#ifdef CUDASIM_ASAN
    /* The kernel's frames have returned when a thread ends, but for fibre_main and what it calls.
     */
    __asan_unpoison_memory_region(f->top - LAST_FRAMES, LAST_FRAMES);
#endif
#if defined __x86_64__ || defined __aarch64__
    void **sp = (void **)f->top - FRAME;
    memset(sp, 0, sizeof(void *) * FRAME);
    sp[RETURN] = (void *)fibre_main;
    f->sp = sp;
#else
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = (size_t)(f->top - f->stack);
    f->context.uc_link = nullptr;
    makecontext(&f->context, fibre_main, 0);
#endif
    f->fake = nullptr;
    f->state = READY;
    f->copies.clear();
    f->group = 0;
}

/* ---- scheduling ---- */

static void make_ready(fibre *f, bool first)
{
    f->state = READY;
    block.queue[(first ? --block.first : block.first + block.queued) % MAX_THREADS] = f;
    block.queued++;
}

static void release_barrier(int rank)
{
    int count = 0;
    for (int i = 0; i < block.n; i++) {
        const fibre *f = &fibres[i];
        count += f->rank == rank && f->state == AT_BARRIER && f->predicate;
    }
    block.of[rank].at_barrier = 0;
    for (int i = 0; i < block.n; i++) {
        fibre *f = &fibres[block.downwards ? block.n - 1 - i : i];
        if (f->rank != rank || f->state != AT_BARRIER)
            continue;
        f->answer = count;
        make_ready(f, false);
    }
}

static bool anyone()
{
    for (const auto &b : block.of)
        if (b.alive)
            return true;
    return false;
}

/* Do what these lanes of a warp wait for, and let them go on. */
static void do_together(warp *w, unsigned lanes, cudasim_together together, unsigned mask)
{
    void *arg[32];
    for (int i = 0; i < 32; i++)
        arg[i] = lanes >> i & 1 ? w->arg[i] : nullptr;
    w->waiting &= ~lanes;
    if (together)
        together(arg, mask);
    fibre *first = &fibres[(w - block.warps) * 32];
    for (int i = 0; i < 32; i++)
        if (lanes >> i & 1)
            make_ready(first + i, block.ahead);
}

/* Where all lanes that f's mask names wait for the same, do it. Mostly the whole warp does. */
static void try_warp(fibre *f)
{
    warp *w = &block.warps[f->number / 32];
    unsigned wanted = f->mask & w->alive;
    if ((w->waiting & wanted) != wanted)
        return;
    for (int i = 0; w->mixed && i < 32; i++) {
        const fibre *l = &fibres[f->number / 32 * 32 + i];
        if (wanted >> i & 1 && (l->together != f->together || l->mask != f->mask))
            return;
    }
    do_together(w, wanted, f->together, f->mask);
}

[[noreturn]] static void stuck()
{
    static const char *const names[] = { "ready", "at a barrier", "in", "ended" };
    fprintf(stderr, "CUDA simulator: threads wait for each other for ever\n");
    int told = 0;
    for (int i = 0; i < block.n && told < 16; i++) {
        const fibre *f = &fibres[i], *b = i ? f - 1 : nullptr;
        if (b && b->state == f->state && b->where == f->where && b->line == f->line &&
            b->mask == f->mask)
            continue;
        told++;
        if (f->state == ENDED)
            fprintf(stderr, "  from thread %d: ended\n", i);
        else
            fprintf(stderr, "  from thread %d: %s %s:%d, lanes %08x\n", i, names[f->state],
                    f->where, f->line, f->mask);
    }
    cudasim_fail("a barrier or an operation of a warp that not all of its threads reach");
}

/* Let others run until this one is ready again. */
static void give_way(bool for_good)
{
    fibre *f = block.now;
    if (!block.queued) {
        if (anyone())
            stuck();
        go(f, &host, for_good);
        return;
    }
    fibre *next = block.queue[block.first++ % MAX_THREADS];
    block.queued--;
    if (next != f)
        go(f, next, for_good);
}

static void copies_until(fibre *f, int group);

static void fibre_main()
{
    arrived(block.now);
    (*block.body)();
    fibre *f = block.now;
    copies_until(f, f->group + 1);
    f->state = ENDED;
    auto &its = block.of[f->rank];
    its.alive--;
    warp *w = &block.warps[f->number / 32];
    w->alive &= ~(1u << f->number % 32);
    if (its.alive && its.at_barrier == its.alive)
        release_barrier(f->rank);
    for (int i = 0; i < 32 && w->waiting; i++) {
        fibre *l = &fibres[f->number / 32 * 32 + i];
        if (w->waiting >> i & 1 && l->mask >> f->number % 32 & 1)
            try_warp(l);
    }
    give_way(true);
    cudasim_fail("a thread that had ended went on");
}

int cudasim_barrier(const char *file, int line, bool predicate)
{
    fibre *f = block.now;
    auto &its = block.of[f->rank];
    if (!its.at_barrier) {
        its.file = file;
        its.line = line;
    } else if (line != its.line || (file != its.file && strcmp(file, its.file))) {
        cudasim_fail("a barrier at %s:%d while others wait at %s:%d", file, line, its.file,
                     its.line);
    }
    f->state = AT_BARRIER;
    f->where = file;
    f->line = line;
    f->predicate = predicate;
    f->mask = 0;
    if (++its.at_barrier == its.alive)
        release_barrier(f->rank);
    give_way(false);
    return f->answer;
}

void cudasim_warp(const char *name, cudasim_together together, unsigned mask, bool whole, void *arg)
{
    fibre *f = block.now;
    warp *w = &block.warps[f->number / 32];
    if (!(mask >> f->number % 32 & 1))
        cudasim_fail("%s: the mask %08x leaves out the lane itself", name, mask);
    if (whole && w->alive != ~0u)
        cudasim_fail("%s needs 32 lanes, and only %08x are there", name, w->alive);
    f->state = IN_WARP;
    f->where = name;
    f->line = 0;
    f->together = together;
    f->mask = mask;
    if (!w->waiting) {
        w->mixed = false;
        w->together = together;
        w->mask = mask;
    }
    w->mixed = w->mixed || w->together != together || w->mask != mask;
    w->waiting |= 1u << f->number % 32;
    w->arg[f->number % 32] = arg;
    try_warp(f);
    give_way(false);
}

void __nanosleep(unsigned)
{
    make_ready(block.now, false);
    give_way(false);
}

long long clock64()
{
    return block.clock++;
}

int cudasim_lane()
{
    return block.now->number % 32;
}

void *cudasim_shared()
{
    return block.of[block.now->rank].shared;
}

void *cudasim_shared_of(int rank)
{
    if (!block.of[rank].alive)
        cudasim_fail("shared memory of a block that has ended");
    return block.of[rank].shared;
}

int cudasim_rank()
{
    return block.now->rank;
}

unsigned __activemask()
{
    return block.warps[block.now->number / 32].alive;
}

/* Run `together` blocks of n threads each, which begin at block `first` of the grid. */
static void run_blocks(int n, int together, size_t first)
{
    block.n = n * together;
    block.first = block.queued = 0;
    memset(block.warps, 0, sizeof *block.warps * (size_t)((block.n + 31) / 32));
    for (int r = 0; r < together; r++) {
        block.of[r].alive = n;
        block.of[r].at_barrier = 0;
    }
    for (int i = 0; i < block.n; i++) {
        block.warps[i / 32].alive |= 1u << i % 32;
        fibre *f = &fibres[i];
        fibre_reset(f);
        f->rank = i / n;
        unsigned u = (unsigned)(i % n);
        size_t b = first + (size_t)f->rank;
        f->index = { u % blockDim.x, u / blockDim.x % blockDim.y, u / blockDim.x / blockDim.y };
        f->block_index = { (unsigned)(b % gridDim.x), (unsigned)(b / gridDim.x % gridDim.y),
                           (unsigned)(b / gridDim.x / gridDim.y) };
    }
    for (int i = 0; i < block.n; i++)
        make_ready(&fibres[block.downwards ? block.n - 1 - i : i], false);
    block.now = &host;
    host.number = -1;
#ifdef CUDASIM_TSAN
    host.tsan = __tsan_get_current_fiber();
#endif
    host.stack = nullptr;
    give_way(false);
}

/* All blocks of a grid; the caller holds the simulator's lock. */
void cudasim_run_grid(const cudasim_site &site, dim3 grid, dim3 threads, size_t smem,
                      const std::function<void()> &body)
{
    static unsigned launches;
    size_t clusters = (size_t)grid.x * grid.y * grid.z / (size_t)site.together;
    int n = (int)(threads.x * threads.y * threads.z);
    bool downwards = launches++ & 1;
    block.site = site;
    if (site.together > 1 && n % 32)
        cudasim_fail("blocks of a cluster with %d threads: not whole warps", n);
    for (int i = 0; i < n * site.together; i++)
        if (!fibres[i].stack)
            fibre_open(&fibres[i]);
    block.body = &body;
    gridDim = grid;
    blockDim = threads;
    for (size_t i = 0; i < clusters; i++) {
        for (int r = 0; r < site.together; r++) {
            void *shared = nullptr;
            if (smem && posix_memalign(&shared, 128, smem))
                cudasim_fail("no memory for shared memory");
            if (smem)
                memset(shared, 0xff, smem);
            block.of[r].shared = shared;
        }
        block.downwards = (i + downwards) & 1;
        block.ahead = ((i + launches) / 2) & 1;
        run_blocks(n, site.together, (downwards ? clusters - 1 - i : i) * (size_t)site.together);
        for (int r = 0; r < site.together; r++)
            free(block.of[r].shared);
    }
    block.body = nullptr;
}

/* ---- instructions ---- */

static void nothing(void *const[32], unsigned)
{
}

void __syncwarp(unsigned mask)
{
    int any = 0;
    cudasim_warp("__syncwarp", nothing, mask, false, &any);
}

struct ballot {
    int predicate;
    unsigned result;
};

static void vote(void *const arg[32], unsigned)
{
    unsigned result = 0;
    for (int i = 0; i < 32; i++)
        if (arg[i] && ((ballot *)arg[i])->predicate)
            result |= 1u << i;
    for (int i = 0; i < 32; i++)
        if (arg[i])
            ((ballot *)arg[i])->result = result;
}

unsigned __ballot_sync(unsigned mask, int predicate)
{
    ballot b = { predicate, 0 };
    cudasim_warp("a vote", vote, mask, false, &b);
    return b.result;
}

static void must_align(const void *p, const char *what)
{
    if ((uintptr_t)p % 16)
        cudasim_fail("%s at %p, which is no multiple of 16", what, p);
}

uint4 load_stream(const void *p)
{
    must_align(p, "load_stream");
    uint4 v;
    memcpy(&v, p, sizeof v);
    return v;
}

void copy_async16(void *shared, const void *global, int bytes)
{
    fibre *f = block.now;
    must_align(shared, "copy_async16 to");
    if (bytes)
        must_align(global, "copy_async16 from");
    if (bytes < 0 || bytes > 16)
        cudasim_fail("copy_async16 of %d bytes", bytes);
    if (f->copies.size() >= MAX_COPIES)
        cudasim_fail("copy_async16: %d copies are open; are they never waited for?", MAX_COPIES);
    memset(shared, 0xff, 16);
    f->copies.push_back({ shared, global, bytes, f->group });
}

void copy_async_commit()
{
    block.now->group++;
}

/* Finish the groups before `group`. */
static void copies_until(fibre *f, int group)
{
    size_t done = 0;
    for (; done < f->copies.size() && f->copies[done].group < group; done++) {
        const copy &c = f->copies[done];
        memcpy(c.to, c.from, (size_t)c.bytes);
        memset((char *)c.to + c.bytes, 0, (size_t)(16 - c.bytes));
    }
    f->copies.erase(f->copies.begin(), f->copies.begin() + (long)done);
}

void cudasim_copy_wait(int open)
{
    copies_until(block.now, block.now->group - open);
}

struct matrices {
    const void *row;
    uint32_t r[4];
};

static void load_matrices(void *const arg[32], int n, bool trans)
{
    for (int m = 0; m < n; m++) {
        uint16_t v[8][8];
        for (int i = 0; i < 8; i++)
            memcpy(v[i], ((matrices *)arg[m * 8 + i])->row, 16);
        for (int l = 0; l < 32; l++) {
            int i = l / 4, j = l % 4 * 2;
            unsigned lo = trans ? v[j][i] : v[i][j], hi = trans ? v[j + 1][i] : v[i][j + 1];
            ((matrices *)arg[l])->r[m] = lo | hi << 16;
        }
    }
}

static void load4(void *const arg[32], unsigned)
{
    load_matrices(arg, 4, false);
}

static void load4_trans(void *const arg[32], unsigned)
{
    load_matrices(arg, 4, true);
}

static void load2(void *const arg[32], unsigned)
{
    load_matrices(arg, 2, false);
}

static void load2_trans(void *const arg[32], unsigned)
{
    load_matrices(arg, 2, true);
}

static void load_some(uint32_t *r, const void *shared, int n, cudasim_together f)
{
    if (cudasim_lane() < 8 * n)
        must_align(shared, "load_matrix");
    matrices m = { shared, {} };
    cudasim_warp("load_matrix", f, ~0u, true, &m);
    memcpy(r, m.r, sizeof *r * (size_t)n);
}

void load_matrix4(uint32_t r[4], const void *shared)
{
    load_some(r, shared, 4, load4);
}

void load_matrix4_trans(uint32_t r[4], const void *shared)
{
    load_some(r, shared, 4, load4_trans);
}

void load_matrix2(uint32_t r[2], const void *shared)
{
    load_some(r, shared, 2, load2);
}

void load_matrix2_trans(uint32_t r[2], const void *shared)
{
    load_some(r, shared, 2, load2_trans);
}

struct fragments {
    float *c;
    const uint32_t *a, *b;
};

static float from_bf16(uint16_t u)
{
    return __bfloat162float(__nv_bfloat16{ u });
}

static float from_f16(uint16_t u)
{
    return __half2float(__half{ u });
}

void cudasim_add_up(double sum[16][8], int depth, const double a[16][16], const double b[16][8])
{
    for (int row = 0; row < 16; row++) {
        double its[8] = {};
        for (int k = 0; k < depth; k++)
            for (int col = 0; col < 8; col++)
                its[col] += a[row][k] * b[k][col];
        memcpy(sum[row], its, sizeof its);
    }
}

/* The sums, then to c: as wgmma does it in sm90.h, for theirs are the same bits. Lane 4 g + t holds
 * rows g and g + 8 and columns 2 t and 2 t + 1 of c. */
static void multiply(void *const arg[32], int depth, const double a[16][16], const double b[16][8])
{
    double sum[16][8];
    cudasim_add_up(sum, depth, a, b);
    for (int l = 0; l < 32; l++) {
        float *c = ((const fragments *)arg[l])->c;
        for (int i = 0; i < 4; i++)
            c[i] = (float)(c[i] + sum[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2]);
    }
}

template <float (*number)(uint16_t)> static void multiply16(void *const arg[32])
{
    uint32_t pairs_a[16][8], pairs_b[8][8]; /* of neighbours in k; b by columns */
    uint16_t halves_a[16][16], halves_b[8][16];
    double a[16][16], b[16][8];
    for (int l = 0; l < 32; l++) {
        const fragments *f = (const fragments *)arg[l];
        int g = l / 4, t = l % 4;
        for (int i = 0; i < 4; i++)
            pairs_a[g + i % 2 * 8][t + i / 2 * 4] = f->a[i];
        for (int i = 0; i < 2; i++)
            pairs_b[g][t + i * 4] = f->b[i];
    }
    memcpy(halves_a, pairs_a, sizeof halves_a);
    memcpy(halves_b, pairs_b, sizeof halves_b);
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < 16; k++)
            a[row][k] = (double)number(halves_a[row][k]);
    for (int k = 0; k < 16; k++)
        for (int col = 0; col < 8; col++)
            b[k][col] = (double)number(halves_b[col][k]);
    multiply(arg, 16, a, b);
}

static void multiply_bf16(void *const arg[32], unsigned)
{
    multiply16<from_bf16>(arg);
}

static void multiply_f16(void *const arg[32], unsigned)
{
    multiply16<from_f16>(arg);
}

static void multiply_tf32(void *const arg[32], unsigned)
{
    double a[16][16], b[16][8];
    for (int l = 0; l < 32; l++) {
        const fragments *f = (const fragments *)arg[l];
        int g = l / 4, t = l % 4;
        for (int i = 0; i < 4; i++)
            a[g + i % 2 * 8][t + i / 2 * 4] = (double)__uint_as_float(f->a[i] & ~0x1fffu);
        for (int i = 0; i < 2; i++)
            b[t + i * 4][g] = (double)__uint_as_float(f->b[i] & ~0x1fffu);
    }
    multiply(arg, 8, a, b);
}

void mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    fragments f = { c, a, b };
    cudasim_warp("mma_bf16", multiply_bf16, ~0u, true, &f);
}

void mma_f16(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    fragments f = { c, a, b };
    cudasim_warp("mma_f16", multiply_f16, ~0u, true, &f);
}

void mma_tf32(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    fragments f = { c, a, b };
    cudasim_warp("mma_tf32", multiply_tf32, ~0u, true, &f);
}

uint32_t tf32_round(float f)
{
    uint32_t u = __float_as_uint(f);
    if ((u & 0x7f800000u) == 0x7f800000u)
        return u;
    return (u + 0x1000u) & ~0x1fffu;
}
