/* The whole unit-test framework: one program per stem includes this once.
 *
 *     TEST(name) { CHECK(cond); CHECK_EQ(a, b); CHECK_STR(s, "x"); CHECK_MSG(cond, "fmt", ...); }
 *     int main(int argc, char **argv) { return test_main(argc, argv); }
 *
 * A TEST registers itself. A failed check is printed and the test goes on; every check is an
 * expression whose value is whether it held, so `if (!CHECK(p)) return;` stops early. Arguments
 * of the program: [--seed N] [words; only tests whose name contains one of them run]. The last
 * line is "N passed, N failed"; a skipped test is printed and counted as neither. A test also fails
 * when the library allocated inside a guarded section (base/mem.h) more often than the test
 * expected in test_forbidden.
 * Tests that write files get a directory from scratch.h. */
#ifndef PV_TESTS_TEST_H
#define PV_TESTS_TEST_H

#include "base/mem.h"
#include "left_out.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Under ThreadSanitizer, which slows everything down some fifteen times, and under an emulator of
 * another CPU (tools/cross.sh), tests whose combinations differ in numbers but not in what threads
 * do try fewer of them. */
#if defined(__SANITIZE_THREAD__) || defined(PV_TEST_BRIEF)
enum { TEST_BRIEF = 1 };
#else
enum { TEST_BRIEF = 0 };
#endif

/* Whether a test that proves the same with many numbers tries some of them only. */
static inline bool test_brief(void)
{
    return TEST_BRIEF || left_out_brief();
}

struct test_case {
    const char *name;
    void (*run)(void);
    struct test_case *next;
};

/* A number as CHECK_EQ sees it: integers and enumerators exactly, the rest as double. */
struct test_num {
    bool is_float;
    long long i;
    double f;
};

static struct test_case *test_first, **test_last = &test_first;
static uint64_t test_seed = 1; /* for random tests; --seed N */
static int test_bad_checks;    /* of the running test */
static bool test_skipped;
static uint64_t test_forbidden; /* allocations in guarded sections that the test wants to see */

#define TEST(name)                                                                                 \
    static void test_##name(void);                                                                 \
    __attribute__((constructor)) static void test_register_##name(void)                            \
    {                                                                                              \
        static struct test_case tc = { #name, test_##name, NULL };                                 \
        *test_last = &tc;                                                                          \
        test_last = &tc.next;                                                                      \
    }                                                                                              \
    static void test_##name(void)

#define CHECK(cond) test_check((cond) ? true : false, __FILE__, __LINE__, "%s", #cond)
#define CHECK_MSG(cond, ...) test_check((cond) ? true : false, __FILE__, __LINE__, __VA_ARGS__)
#define CHECK_EQ(a, b) test_check_eq(TEST_NUM(a), TEST_NUM(b), __FILE__, __LINE__, #a " == " #b)
#define CHECK_STR(a, b) test_check_str((a), (b), __FILE__, __LINE__, #a " == " #b)
#define TEST_NUM(x) _Generic((x), float : test_num_f, double : test_num_f, default : test_num_i)(x)

static inline struct test_num test_num_f(double f)
{
    return (struct test_num){ true, 0, f };
}

static inline struct test_num test_num_i(long long i)
{
    return (struct test_num){ false, i, (double)i };
}

__attribute__((format(printf, 4, 5))) static inline bool test_check(bool ok, const char *file,
                                                                    int line, const char *fmt, ...)
{
    va_list ap;
    if (ok)
        return true;
    test_bad_checks++;
    printf("  %s:%d: ", file, line);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
    return false;
}

static inline bool test_check_eq(struct test_num a, struct test_num b, const char *file, int line,
                                 const char *text)
{
    if (a.is_float || b.is_float)
        return test_check(a.f == b.f, file, line, "%s: %.17g and %.17g", text, a.f, b.f);
    return test_check(a.i == b.i, file, line, "%s: %lld and %lld", text, a.i, b.i);
}

static inline bool test_check_str(const char *a, const char *b, const char *file, int line,
                                  const char *text)
{
    bool ok = a && b ? strcmp(a, b) == 0 : a == b;
    return test_check(ok, file, line, "%s: \"%s\" and \"%s\"", text, a ? a : "(null)",
                      b ? b : "(null)");
}

/* The running test cannot run here; return after it. */
static inline void test_skip(const char *why)
{
    test_skipped = true;
    printf("  skipped: %s\n", why);
}

static inline bool test_wanted(const char *name, int argc, char **argv)
{
    bool wanted = argc < 2;
    for (int i = 1; i < argc && !wanted; i++)
        wanted = strstr(name, argv[i]) != NULL;
    return wanted;
}

/* Run one test, and look for allocations where there must be none. */
static inline void test_run(const struct test_case *t)
{
    uint64_t before = mem_forbidden(), n;
    test_bad_checks = 0;
    test_skipped = false;
    test_forbidden = 0;
    t->run();
    n = mem_forbidden() - before;
    test_check(n == test_forbidden, __FILE__, __LINE__,
               "%llu allocations in guarded sections, expected %llu", (unsigned long long)n,
               (unsigned long long)test_forbidden);
}

static inline int test_main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/');
    static struct left_out out;
    int passed = 0, failed = 0;

    left_out_open(&out, slash ? slash + 1 : argv[0]);
    setvbuf(stdout, NULL, _IOLBF, 0); /* what was printed survives a crash */
    if (argc > 2 && !strcmp(argv[1], "--seed")) {
        test_seed = strtoull(argv[2], NULL, 0);
        argc -= 2;
        argv += 2;
    }
    for (struct test_case *t = test_first; t; t = t->next) {
        if (left_out(&out, t->name) || !test_wanted(t->name, argc, argv))
            continue;
        test_run(t);
        if (test_bad_checks)
            failed++;
        else if (!test_skipped)
            passed++;
        printf("%s %s\n", test_bad_checks ? "FAIL" : test_skipped ? "skip" : "ok", t->name);
    }
    failed += left_out_close(&out);
    printf("%d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}

#endif
