/* Remembered states: a prompt that begins alike gets those of the longest beginning, and no others.
 */
#include "engine/state_cache.h"

#include "base/mem.h"
#include "base/rng.h"
#include "test.h"

enum { HIDDEN = 4, CONTEXT = 64 };

static const struct head_features last_norm = { 0 }, of_layers = { 2, { 1, 2 } };

static void name_rows(struct kv_key *rows, const int32_t *ids, int n)
{
    for (int i = 0; i < n; i++) {
        rows[i] = (struct kv_key){ { 0 } };
        memcpy(rows[i].bytes, &ids[i], sizeof ids[i]);
    }
}

/* States as a run over these ids leaves them: a function of the row and its id. */
static void run_rows(struct states *s, const int32_t *ids, int n)
{
    for (int i = s->n; i < n; i++) {
        struct hidden_tap tap[STATES_MAX_TAPS];
        int n_taps;
        CHECK(!states_reserve(s, ids, n, 0, NULL));
        n_taps = states_tap(s, ids, n, i, 1, tap);
        for (int t = 0; t < n_taps; t++)
            for (int k = 0; k < HIDDEN; k++)
                tap[t].out[k] = (float)(100 * ids[i] + 10 * i + k);
        states_commit(s, ids, n, i, 1);
    }
}

TEST(states_of_the_same_rows_are_found)
{
    size_t before = mem_bytes();
    struct state_cache *c = state_cache_open(1 << 16);
    struct rng r = { test_seed };
    int64_t found = 0;
    for (int round = 0; round < 500; round++) {
        int32_t ids[CONTEXT];
        struct kv_key rows[CONTEXT];
        struct states s;
        int n = 2 + (int)(rng_next(&r) % (CONTEXT - 2)), held;
        uint64_t branch = rng_next(&r) % 3;
        for (int i = 0; i < n; i++) /* a few beginnings, then anything */
            ids[i] = i < 20 ? (int32_t)branch + i % 7 : (int32_t)(rng_next(&r) % 3);
        for (int i = 4; i < 12; i++)
            ids[i < n ? i : 0] = i < n ? -1 : ids[0];
        name_rows(rows, ids, n);
        CHECK(!states_open(&s, CONTEXT, HIDDEN, round % 7 ? last_norm : of_layers, CONTEXT, NULL));
        states_want(&s, round % 5 == 0, 0);
        state_cache_find(c, rows, n, &s);
        held = s.n;
        found += held > 0;
        for (int i = 0; i < held; i++) {
            const float *x = states_feature(&s, i, 0);
            bool wanted = s.all || ids[i + 1] >= 0;
            CHECK(!wanted || (x && x[1] == (float)(100 * ids[i] + 10 * i + 1)));
            x = s.features.n > 0 ? states_feature(&s, i, 1) : NULL;
            CHECK(s.features.n == 0 || !wanted ||
                  (x && x[1] == (float)(100 * ids[i] + 10 * i + 1)));
        }
        run_rows(&s, ids, n);
        CHECK_EQ(s.n, n);
        state_cache_keep(c, rows, &s);
        states_close(&s);
    }
    CHECK(found > 100);
    state_cache_close(&c);
    CHECK_EQ(mem_bytes(), before);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
