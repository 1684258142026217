/* What is told when something is missing: a driver, a GPU, code for it, memory. One sentence each,
 * nothing left behind, and the device goes on working. What no real GPU can be made to lack is
 * tried over the simulator only. */
#include "check_cuda.h"
#include "cudasim/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* There where the simulator is linked in. */
extern void cudasim_be(const struct cudasim_gpu *gpu) __attribute__((weak));
extern void cudasim_is(struct cudasim_gpu *gpu) __attribute__((weak));
extern size_t cudasim_in_use(void) __attribute__((weak));

static bool simulated(void)
{
    return cudasim_be != NULL;
}

static void expect(struct cuda_check *t, enum pv_status got, const struct pv_error *err,
                   enum pv_status want, const char *text)
{
    if (got != want || err->code != want || !strstr(err->text, text) || strchr(err->text, '\n'))
        check_fail(&t->c, "status %d \"%s\", not %d \"..%s..\"", (int)got, err->text, (int)want,
                   text);
}

static void expect_open(struct cuda_check *t, int index, enum pv_status want, const char *text)
{
    struct pv_error err = { 0 };
    struct device *dev = NULL;
    enum pv_status s = device_cuda_open(&dev, index, &err);
    expect(t, s, &err, want, text);
    if (!s)
        device_close(&dev);
}

static void check_opening(struct cuda_check *t)
{
    struct cudasim_gpu g;
    expect_open(t, 777, PV_E_DEVICE, "there is no GPU 777: this machine has ");
    if (!simulated())
        return;
    const struct {
        struct cudasim_gpu gpu;
        enum pv_status want;
        const char *text;
    } cases[] = {
        { { .driver = 0 }, PV_E_DEVICE, "this machine has no NVIDIA driver" },
        { { .driver = 12040 }, PV_E_DEVICE, "is for CUDA 12.4: this build needs one for 13.0" },
        { { .driver = 13000 }, PV_E_DEVICE, "no NVIDIA GPU can be used" },
        { { 13000, 1, 7, true, 1 << 30, -1 }, PV_E_UNSUPPORTED, "7.0: at least 8.0 is needed" },
        { { 13000, 1, 12, false, 1 << 30, -1 }, PV_E_UNSUPPORTED, "no code for compute capa" },
        { { 13000, 1, 8, true, 1 << 30, 0 }, PV_E_DEVICE, "cannot be used: out of memory" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cudasim_be(&cases[i].gpu);
        expect_open(t, 0, cases[i].want, cases[i].text);
        cudasim_be(NULL);
    }
    cudasim_is(&g);
    g.gpus = 2;
    cudasim_be(&g);
    expect_open(t, 2, PV_E_DEVICE, "there is no GPU 2: this machine has 2");
    cudasim_be(NULL);
}

/* More than the GPU has: of one block, of a matrix, of a session. */
static void check_too_large(struct cuda_check *t)
{
    struct matrix m = { .dtype = DTYPE_BF16, .out = 1 << 22, .in = 1 << 20, .row_size = 2 << 20 };
    struct work_shape shape = { .rows = 1 << 20, .in = 1 << 20, .out = 64 };
    struct device_work *w = NULL;
    struct pv_error err = { 0 };
    void *p = NULL;
    expect(t, device_alloc(t->dev, &p, (size_t)1 << 43, &err), &err, PV_E_NOMEM,
           "not enough memory for 8796093022208 bytes on ");
    err = (struct pv_error){ 0 };
    expect(t, t->ops->draw(t->dev, &m, 1, &err), &err, PV_E_NOMEM, "for a matrix do not fit on ");
    if (m.data)
        check_fail(&t->c, "a matrix without room has data");
    err = (struct pv_error){ 0 };
    expect(t, t->ops->work_open(t->dev, &w, &shape, &err), &err, PV_E_NOMEM,
           "not enough memory for ");
    if (p || w)
        check_fail(&t->c, "something without room was given out");
}

static enum pv_status open_work(struct cuda_check *t, struct pv_error *err)
{
    struct work_shape shape = { .rows = 4, .in = 64, .out = 64 };
    struct device_work *w = NULL;
    enum pv_status s = t->ops->work_open(t->dev, &w, &shape, err);
    if (!s)
        t->ops->work_close(t->dev, &w);
    return s;
}

static enum pv_status open_device(struct cuda_check *t, struct pv_error *err)
{
    struct device *dev = NULL;
    enum pv_status s = device_cuda_open(&dev, 0, err);
    (void)t;
    if (!s)
        device_close(&dev);
    return s;
}

static enum pv_status take_matrix(struct cuda_check *t, struct pv_error *err)
{
    static const uint8_t rows[34 * 8];
    struct matrix m = { .dtype = DTYPE_Q8_0, .out = 8, .in = 32, .data = rows, .row_size = 34 };
    enum pv_status s = t->ops->take(t->dev, &m, err);
    if (!s)
        t->ops->drop(t->dev, &m);
    return s;
}

/* Each allocation in turn is refused. */
static void check_refused(struct cuda_check *t)
{
    enum pv_status (*const opened[])(struct cuda_check *,
                                     struct pv_error *) = { open_work, open_device, take_matrix };
    size_t before = cudasim_in_use();
    for (size_t i = 0; i < sizeof opened / sizeof *opened; i++)
        for (int n = 0; n < 100; n++) {
            struct cudasim_gpu g;
            struct pv_error err = { 0 };
            cudasim_is(&g);
            g.allocations = n;
            cudasim_be(&g);
            enum pv_status s = opened[i](t, &err);
            cudasim_be(NULL);
            if (cudasim_in_use() != before)
                check_fail(&t->c, "%zu, allocation %d: %zu bytes instead of %zu", i, n,
                           cudasim_in_use(), before);
            if (!s && n > 0)
                break;
            if (s != PV_E_NOMEM && s != PV_E_DEVICE)
                check_fail(&t->c, "%zu, allocation %d: status %d \"%s\"", i, n, (int)s, err.text);
        }
}

/* What failed is not told again. */
static void check_goes_on(struct cuda_check *t)
{
    struct pv_error err = { 0 };
    struct cuda_matrix_pair p;
    void *block = NULL;
    if (device_alloc(t->dev, &block, 4096, &err))
        check_fail(&t->c, "afterwards: %s", err.text);
    else
        t->ops->free(t->dev, block);
    pair_open(t, &p, DTYPE_Q8_0, 64, 8, false, PAIR_ANY);
    pair_close(t, &p);
    check_wait(t, t->w);
}

void check_cuda_errors(struct cuda_check *t)
{
    static const struct {
        const char *name;
        void (*run)(struct cuda_check *t);
        bool simulated;
    } tests[] = { { "opening", check_opening, false },
                  { "too_large", check_too_large, false },
                  { "refused", check_refused, true } };
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        if ((tests[i].simulated && !simulated()) || !check_begin(&t->c, tests[i].name, ""))
            continue;
        tests[i].run(t);
        check_goes_on(t);
        check_end(&t->c);
    }
}
