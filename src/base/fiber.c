/* Fibers by the C library's contexts. A page that cannot be touched lies below each stack, so that
 * an overflow is a fault and not a silent overwrite. The sanitizers must be told of every switch:
 * they keep a stack's bounds (ASan) and a thread's history (TSan). */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "base/fiber.h"

#include "base/mem.h"

#include <assert.h>
#include <stdint.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#if __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

enum { STACK_SIZE = 1 << 20 }; /* reserved; only what is used becomes memory */

struct fiber {
    void (*run)(void *arg);
    void *arg;
    ucontext_t here, caller;
    uint8_t *stack;
    size_t guard;
    bool running, ended;
    void *fake, *caller_fake; /* ASan's */
    const void *caller_bottom;
    size_t caller_size;
    void *tsan, *caller_tsan;
};

/* ---- telling the sanitizers ---- */

static void before_switch(struct fiber *f, bool in)
{
#if defined(__SANITIZE_ADDRESS__)
    if (in)
        __sanitizer_start_switch_fiber(&f->caller_fake, f->stack + f->guard, STACK_SIZE);
    else /* a fiber that ends gives up its fake stack */
        __sanitizer_start_switch_fiber(f->ended ? NULL : &f->fake, f->caller_bottom,
                                       f->caller_size);
#endif
#if defined(__SANITIZE_THREAD__)
    if (in)
        f->caller_tsan = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(in ? f->tsan : f->caller_tsan, 0);
#endif
    (void)f, (void)in;
}

static void after_switch(struct fiber *f, bool in)
{
#if defined(__SANITIZE_ADDRESS__)
    if (in)
        __sanitizer_finish_switch_fiber(f->fake, &f->caller_bottom, &f->caller_size);
    else
        __sanitizer_finish_switch_fiber(f->caller_fake, NULL, NULL);
#endif
    (void)f, (void)in;
}

/* ---- switching ---- */

/* swapcontext by its parts: ASan prints a warning when it meets that function, whatever it is told
 * of the switch. TSan follows calls and returns, so there it must be the function. */
static void switch_to(ucontext_t *from, const ucontext_t *to)
{
#if defined(__SANITIZE_THREAD__)
    swapcontext(from, to);
#else
    volatile bool back = false;
    getcontext(from);
    if (back)
        return;
    back = true;
    setcontext(to);
#endif
}

/* makecontext hands over numbers of type int: a pointer travels as two. */
static void start(unsigned high, unsigned low)
{
    struct fiber *f = (struct fiber *)((uintptr_t)high << 16 << 16 | (uintptr_t)low);
    after_switch(f, true);
    f->run(f->arg);
    f->ended = true;
    before_switch(f, false);
    setcontext(&f->caller);
}

struct fiber *fiber_open(void (*run)(void *arg), void *arg)
{
    struct fiber *f = mem_zalloc(sizeof *f);
    uintptr_t self = (uintptr_t)f;
    long page = sysconf(_SC_PAGESIZE);
    void *stack;
    if (!f)
        return NULL;
    f->run = run;
    f->arg = arg;
    f->guard = (size_t)page;
    stack = mmap(NULL, STACK_SIZE + f->guard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                 -1, 0);
    if (stack == MAP_FAILED || mprotect(stack, f->guard, PROT_NONE) != 0 ||
        getcontext(&f->here) != 0) {
        if (stack != MAP_FAILED)
            munmap(stack, STACK_SIZE + f->guard);
        mem_free(f);
        return NULL;
    }
    f->stack = stack;
    f->here.uc_stack.ss_sp = f->stack + f->guard;
    f->here.uc_stack.ss_size = STACK_SIZE;
    makecontext(&f->here, (void (*)(void))start, 2, (unsigned)(self >> 16 >> 16), (unsigned)self);
#if defined(__SANITIZE_THREAD__)
    f->tsan = __tsan_create_fiber(0);
#endif
    return f;
}

void fiber_resume(struct fiber *f)
{
    assert(!f->running && !f->ended);
    f->running = true;
    before_switch(f, true);
    switch_to(&f->caller, &f->here);
    after_switch(f, false);
    f->running = false;
}

void fiber_yield(struct fiber *f)
{
    assert(f->running);
    before_switch(f, false);
    switch_to(&f->here, &f->caller);
    after_switch(f, true);
}

void fiber_close(struct fiber **fiber)
{
    struct fiber *f = *fiber;
    if (!f)
        return;
    assert(!f->running);
#if defined(__SANITIZE_THREAD__)
    __tsan_destroy_fiber(f->tsan);
#endif
    munmap(f->stack, STACK_SIZE + f->guard);
    mem_free(f);
    *fiber = NULL;
}
