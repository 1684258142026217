/* A growing row of samples. */
#include "audio/sound.h"

#include "test.h"

#include <math.h>

TEST(samples_are_added)
{
    static const float some[] = { 0.5f, (float)NAN, -2, -(float)INFINITY, 1e-40f };
    struct sound s = { .start = 3 };

    CHECK(!sound_append(&s, NULL, 0, NULL) && s.n == 0 && !s.samples);
    for (int i = 0; i < 10000; i++) {
        CHECK(!sound_append(&s, some, 5, NULL));
        CHECK(!sound_append(&s, NULL, 2, NULL));
    }
    if (!CHECK_EQ(s.n, 70000))
        return;
    for (size_t i = 0; i < s.n; i++) {
        static const float want[] = { 0.5f, 0, -2, 0, 1e-40f, 0, 0 };
        if (!CHECK_MSG(!memcmp(&s.samples[i], &want[i % 7], sizeof *want), "sample %zu is %g", i,
                       s.samples[i]))
            break;
    }
    CHECK(s.start == 3 && s.cap >= s.n && s.cap < 3 * s.n);
    sound_clear(&s);
    CHECK(!s.samples && s.n == 0);
}

TEST(memory_that_fails)
{
    struct sound s = { 0 };
    struct pv_error err = { 0 };

    CHECK(!sound_append(&s, NULL, 100, NULL));
    mem_fail_at(1);
    CHECK_EQ(sound_append(&s, NULL, 1 << 20, &err), PV_E_NOMEM);
    CHECK(s.n == 100 && s.samples && err.text[0]);
    mem_fail_at(0);
    CHECK_EQ(sound_append(&s, NULL, SIZE_MAX, NULL), PV_E_NOMEM);
    CHECK_EQ(sound_append(&s, NULL, SIZE_MAX / 4, NULL), PV_E_NOMEM);
    CHECK_EQ(s.n, 100);
    sound_clear(&s);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
