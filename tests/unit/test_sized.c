/* Structs that begin with their size, of callers with fewer fields than the library and with more.
 */
#include "base/sized.h"
#include "prevue/prevue.h"
#include "test.h"

#include <string.h>

struct now {
    size_t size;
    int a, b;
    double c;
};

struct before {
    size_t size;
    int a, b;
};

static const struct now usual = { .a = 1, .b = 2, .c = 0.5 };

TEST(defaults_fill_what_there_is)
{
    struct {
        struct now now;
        int more;
    } later;
    struct before before;
    struct now now;
    memset(&later, 0xff, sizeof later);
    sized_init(&now, sizeof now, &usual, sizeof usual);
    sized_init(&before, sizeof before, &usual, sizeof usual);
    sized_init(&later, sizeof later, &usual, sizeof usual);
    CHECK(now.size == sizeof now && now.a == 1 && now.b == 2 && now.c == 0.5);
    CHECK(before.size == sizeof before && before.a == 1 && before.b == 2);
    CHECK(later.now.size == sizeof later && later.now.c == 0.5 && later.more == 0);
}

TEST(a_shorter_struct_means_the_defaults)
{
    struct before before = { .size = sizeof before, .a = 7, .b = 8 };
    struct now own = usual;
    CHECK_EQ(sized_read(&own, sizeof own, &before, "a thing", NULL), PV_OK);
    CHECK(own.size == sizeof own && own.a == 7 && own.b == 8 && own.c == 0.5);
}

TEST(a_struct_without_a_known_size_is_refused)
{
    static const size_t sizes[] = { 0, 1, sizeof(size_t) - 1, sizeof(struct now) + 1, SIZE_MAX };
    struct now theirs = { .a = 7 }, own = usual;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct pv_error err = { 0 };
        theirs.size = sizes[i];
        CHECK_EQ(sized_read(&own, sizeof own, &theirs, "a thing", &err), PV_E_ARG);
        CHECK(strstr(err.text, "parameters of a thing"));
        CHECK(own.a == 1 && own.size == 0);
    }
}

TEST(no_struct_is_refused)
{
    struct pv_error err = { 0 };
    struct now own = usual;
    CHECK_EQ(sized_read(&own, sizeof own, NULL, "a thing", &err), PV_E_ARG);
    CHECK_MSG(!strcmp(err.text, "no parameters of a thing"), "%s", err.text);
}

TEST(results_fill_what_there_is)
{
    struct {
        struct before before;
        int behind;
    } shorter = { .before = { .size = sizeof(struct before) }, .behind = 99 };
    struct now none = { .size = 0, .a = 5 };
    sized_write(&shorter, &usual, sizeof usual);
    CHECK(shorter.before.size == sizeof(struct before) && shorter.before.b == 2);
    CHECK_EQ(shorter.behind, 99);
    sized_write(&none, &usual, sizeof usual);
    CHECK_EQ(none.a, 5);
}

/* The library's own structs. */
TEST(every_function_wants_a_size)
{
    struct pv_model_params model = { .path = "no-such.gguf" };
    struct pv_method method = { .name = "none" };
    struct pv_error err = { 0 };
    pv_model *m = NULL;
    CHECK_EQ(pv_model_open(&m, &model, &err), PV_E_ARG);
    CHECK_STR(err.text, "parameters of a model without their size");
    CHECK_EQ(pv_method_find(&method, "sd", NULL), PV_E_ARG);
    CHECK_STR(method.name, "none");
    CHECK_EQ(pv_method_check(&method, NULL), PV_E_ARG);
    method.size = offsetof(struct pv_method, shape); /* as if it ended there */
    method.shape = PV_SHAPE_FITTED;
    CHECK_EQ(pv_method_find(&method, "sd-tree", NULL), PV_OK);
    CHECK(method.drafter == PV_DRAFT_MODEL && method.shape == PV_SHAPE_FITTED);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
