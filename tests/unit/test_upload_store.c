/* The store of uploads: its counters, while several threads use it and another server shares its
 * directory. */
#include "upload_store.h"

#include "base/buf.h"
#include "base/thread.h"
#include "scratch.h"
#include "test.h"

#include <stdatomic.h>
#include <sys/resource.h>

enum { FILE_BYTES = 1000, ROUNDS = 300, READERS = 3, NEW = 4, ALL_BYTES = 20 * FILE_BYTES };

static const char type[] = "multipart/form-data; boundary=b";
static const char head[] =
    "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\n";

static struct upload_store *open_store(void)
{
    struct pv_error err = { 0 };
    struct upload_store *s = NULL;
    CHECK_MSG(!upload_store_open(&s, scratch_dir(), ALL_BYTES, ALL_BYTES, &err), "%s", err.text);
    return s;
}

/* Upload so many bytes. The status of the refusal; 0: it is stored, under the id. */
static int upload(struct upload_store *s, size_t bytes, char id[STORED_ID], bool whole)
{
    struct api_error e = { 0 };
    struct upload *u = upload_begin(s, type, &e);
    struct stored_file f;
    char *data = mem_zalloc(bytes);
    bool ok = u && upload_add(u, head, sizeof head - 1, &e) && upload_add(u, data, bytes, &e);
    mem_free(data);
    if (ok && whole && upload_add(u, "\r\n--b--", 7, &e) && upload_finish(&u, &f, &e))
        memcpy(id, f.id, STORED_ID);
    upload_abandon(&u);
    return e.status;
}

/* A file of another server that cannot be looked for now is not told to be missing. */
TEST(lack_of_descriptors_is_not_a_missing_file)
{
    struct upload_store *store = open_store(), *other = open_store();
    struct api_error missing = { 0 }, lacking = { 0 };
    struct rlimit usual, none;
    struct stored_file f;
    char id[STORED_ID];
    CHECK_EQ(upload(other, FILE_BYTES, id, true), 0);
    CHECK(!stored_find(store, "file-none", &f) && !stored_fail(&missing, "file-none"));
    CHECK_EQ(missing.status, 404);
    CHECK(getrlimit(RLIMIT_NOFILE, &usual) == 0);
    none = (struct rlimit){ 0, usual.rlim_max };
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    CHECK(!stored_find(store, id, &f) && !stored_fail(&lacking, id));
    CHECK(setrlimit(RLIMIT_NOFILE, &usual) == 0);
    CHECK_EQ(lacking.status, 503);
    CHECK_MSG(strstr(lacking.message, "cannot be looked for now: Too many open files") &&
                  !strchr(lacking.message, '/'),
              "%s", lacking.message);
    CHECK(stored_find(store, id, &f) && stored_remove(store, id)); /* no fault of the file */
    upload_store_close(&store);
    upload_store_close(&other);
}

struct shared {
    struct upload_store *store;
    char ids[ROUNDS][STORED_ID];
    atomic_int n;
    atomic_bool over;
};

/* What workers do for requests that name a file. */
static void *find_all(void *arg)
{
    struct shared *sh = arg;
    struct stored_file f;
    while (!atomic_load(&sh->over))
        for (int n = atomic_load(&sh->n), i = n > NEW ? n - NEW : 0; i < n; i++)
            stored_find(sh->store, sh->ids[i], &f);
    return NULL;
}

TEST(counters_stay_right_with_several_threads)
{
    static struct shared sh;
    struct upload_store *other;
    pthread_t reader[READERS];
    char id[STORED_ID];
    sh.store = open_store();
    other = open_store();
    for (int i = 0; i < READERS; i++)
        CHECK(thread_start(&reader[i], find_all, &sh));
    for (int i = 0; i < ROUNDS; i++) {
        struct stored_file f;
        CHECK_EQ(upload(other, FILE_BYTES, sh.ids[i], true), 0); /* readers adopt it */
        atomic_store(&sh.n, i + 1);
        CHECK_EQ(upload(sh.store, FILE_BYTES, id, true), 0);
        CHECK_EQ(upload(sh.store, FILE_BYTES, id, false), 0); /* the client leaves */
        CHECK(stored_find(other, id, &f) && stored_remove(other, id));
        CHECK(stored_remove(other, sh.ids[i])); /* readers notice that it is gone */
    }
    atomic_store(&sh.over, true);
    for (int i = 0; i < READERS; i++)
        pthread_join(reader[i], NULL);
    CHECK_EQ(upload(sh.store, ALL_BYTES, id, true), 0); /* there is room for all again */
    CHECK_EQ(upload(sh.store, 1, id, true), 507);
    upload_store_close(&sh.store);
    upload_store_close(&other);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
