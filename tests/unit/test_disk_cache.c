/* Entries on disk: what was kept is found again in another process, whatever is damaged is told
 * once, removed and not found, the limit holds, and files of others are left alone. */
#define _GNU_SOURCE
#include "engine/disk_cache.h"

#include "base/mem.h"
#include "base/rng.h"
#include "make_file.h"
#include "scratch.h"
#include "test.h"
#include "warnings.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { SIZE = 1000, FILE_BYTES = SIZE + DISK_HEADER + DIGEST_SIZE };

static char dir_path[256];

/* A new directory of this name. */
static const char *fresh_dir(const char *name)
{
    snprintf(dir_path, sizeof dir_path, "%s/%s", scratch_dir(), name);
    scratch_remove(dir_path);
    return dir_path;
}

static struct disk_cache *open_cache(uint64_t limit, struct warnings *warnings)
{
    struct disk_cache_params p = {
        .dir = dir_path, .limit = limit, .warn = warn, .user = warnings
    };
    struct disk_cache *c = NULL;
    struct pv_error err = { 0 };
    CHECK_MSG(disk_cache_open(&c, &p, &err) == PV_OK, "%s", err.text);
    return c;
}

static void fill(uint8_t *data, uint64_t seed)
{
    struct rng r = { seed };
    for (int i = 0; i < SIZE; i++)
        data[i] = (uint8_t)rng_next(&r);
}

static void make_key(uint8_t key[DIGEST_SIZE], int n)
{
    memset(key, n, DIGEST_SIZE);
    key[0] = (uint8_t)(n >> 8);
}

static void keep(struct disk_cache *c, int n)
{
    uint8_t key[DIGEST_SIZE], data[SIZE];
    make_key(key, n);
    fill(data, (uint64_t)n);
    disk_cache_keep(c, DISK_ROWS, key, data, SIZE);
}

/* Whether it is found, and then as it was kept. */
static bool finds(struct disk_cache *c, int n)
{
    uint8_t key[DIGEST_SIZE], data[SIZE];
    struct disk_entry e = { 0 };
    bool found;
    make_key(key, n);
    fill(data, (uint64_t)n);
    found = disk_cache_find(c, DISK_ROWS, key, SIZE, &e);
    if (found)
        CHECK(!memcmp(e.data, data, SIZE));
    disk_entry_clear(&e);
    return found;
}

static void path_of(char path[512], int n)
{
    uint8_t key[DIGEST_SIZE];
    int at = snprintf(path, 512, "%s/rows-", dir_path);
    make_key(key, n);
    for (int i = 0; i < DIGEST_SIZE; i++)
        at += snprintf(path + at, 512 - (size_t)at, "%02x", key[i]);
    snprintf(path + at, 512 - (size_t)at, ".pvc");
}

/* The file was used so many seconds ago. */
static void age(int n, int seconds)
{
    struct timeval t[2] = { { .tv_sec = time(NULL) - seconds } };
    char path[512];
    path_of(path, n);
    t[1] = t[0];
    CHECK(!utimes(path, t));
}

static uint64_t dir_bytes(int *n)
{
    DIR *d = opendir(dir_path);
    uint64_t bytes = 0;
    *n = 0;
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        char path[600];
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", dir_path, e->d_name);
        if (stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
            bytes += (uint64_t)st.st_size;
            ++*n;
        }
    }
    if (d)
        closedir(d);
    return bytes;
}

TEST(another_process_finds_what_was_kept)
{
    size_t before = mem_bytes();
    struct warnings warnings = { 0 };
    struct disk_cache *c;
    uint8_t key[DIGEST_SIZE];
    struct disk_entry e = { 0 };
    fresh_dir("kept");
    c = open_cache(0, &warnings);
    CHECK(!finds(c, 1));
    for (int i = 0; i < 300; i += 7)
        keep(c, i);
    make_key(key, 1000);
    disk_cache_keep(c, DISK_PAGE, key, NULL, 0);
    disk_cache_close(&c);
    c = open_cache(0, &warnings);
    for (int i = 0; i < 300; i++)
        CHECK_EQ(finds(c, i), i % 7 == 0);
    CHECK(disk_cache_find(c, DISK_PAGE, key, 0, &e));
    CHECK(!disk_cache_find(c, DISK_MEDIA, key, 0, &e)); /* another kind is another entry */
    CHECK(disk_cache_has(c, DISK_PAGE, key) && !disk_cache_has(c, DISK_MEDIA, key));
    CHECK_EQ(disk_cache_counts(c).found[DISK_ROWS], 43);
    CHECK_EQ(disk_cache_counts(c).missed[DISK_ROWS], 257);
    disk_entry_clear(&e);
    disk_cache_close(&c);
    CHECK_EQ(warnings.n, 0);
    CHECK_EQ(mem_bytes(), before);
}

/* A damaged file: told once in a sentence with this word, gone, and replaced by the next. */
static void check_damaged(struct disk_cache *c, struct warnings *warnings, const char *word,
                          const char *what, size_t at)
{
    char path[512];
    path_of(path, 5);
    warnings->n = 0;
    CHECK_MSG(!finds(c, 5), "%s at %zu", what, at);
    CHECK_MSG(warnings->n == 1 && strstr(warnings->last, path) && strstr(warnings->last, word),
              "%s at %zu: told %d times \"%s\"", what, at, warnings->n, warnings->last);
    CHECK(access(path, F_OK) != 0);
    CHECK(!finds(c, 5) && warnings->n == 1); /* a file that is not there is told nobody */
    keep(c, 5);
    CHECK(finds(c, 5));
}

TEST(a_damaged_file_is_told_removed_and_replaced)
{
    static const size_t lengths[] = { 0,  1,  7,   8,   DISK_HEADER - 1, DISK_HEADER,
                                      95, 96, 500, 900, FILE_BYTES - 33, FILE_BYTES - 1 };
    static const struct {
        size_t at;
        const char *word;
    } flips[] = { { 0, "does not begin" },
                  { 8, "version" },
                  { 12, "another key" },
                  { 16, "header says" },
                  { 23, "header says" },
                  { 24, "checksum" },
                  { 32, "another key" },
                  { 63, "another key" },
                  { DISK_HEADER, "checksum" },
                  { DISK_HEADER + SIZE - 1, "checksum" },
                  { DISK_HEADER + SIZE, "checksum" },
                  { FILE_BYTES - 1, "checksum" } };
    struct warnings warnings = { 0 };
    uint8_t file[FILE_BYTES + 1] = { 0 }, *written;
    size_t size;
    struct disk_cache *c;
    char path[512];
    fresh_dir("damaged");
    c = open_cache(0, &warnings);
    keep(c, 5);
    path_of(path, 5);
    written = make_load(path, &size);
    CHECK_EQ(size, FILE_BYTES);
    memcpy(file, written, FILE_BYTES);
    free(written);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        make_write(path, file, lengths[i]);
        check_damaged(c, &warnings, "1096 were expected", "cut", lengths[i]);
    }
    make_write(path, file, FILE_BYTES + 1);
    check_damaged(c, &warnings, "1096 were expected", "longer", FILE_BYTES + 1);
    for (size_t i = 0; i < sizeof flips / sizeof *flips; i++) {
        file[flips[i].at] ^= 0x10;
        make_write(path, file, FILE_BYTES);
        check_damaged(c, &warnings, flips[i].word, "flipped", flips[i].at);
        file[flips[i].at] ^= 0x10;
    }
    path_of(path, 6); /* whole, under another name */
    make_write(path, file, FILE_BYTES);
    CHECK(!finds(c, 6) && strstr(warnings.last, "another key"));
    CHECK_EQ(disk_cache_counts(c).damaged,
             sizeof lengths / sizeof *lengths + sizeof flips / sizeof *flips + 2);
    disk_cache_close(&c);
}

TEST(what_was_used_longest_ago_goes_first)
{
    struct warnings warnings = { 0 };
    struct disk_cache *c;
    int n;
    fresh_dir("limit");
    c = open_cache(10 * FILE_BYTES, &warnings);
    for (int i = 0; i < 10; i++) {
        keep(c, i);
        age(i, 1000 - 10 * i);
    }
    CHECK_EQ(dir_bytes(&n), 10 * FILE_BYTES);
    CHECK(finds(c, 0)); /* used now */
    keep(c, 10);
    CHECK(dir_bytes(&n) <= 10 * FILE_BYTES && n >= 9);
    CHECK(finds(c, 0) && !finds(c, 1) && finds(c, 3) && finds(c, 10));
    for (int i = 11; i < 200; i++) {
        keep(c, i);
        CHECK(dir_bytes(&n) <= 10 * FILE_BYTES && n >= 8);
        CHECK(finds(c, i));
    }
    CHECK(disk_cache_counts(c).removed >= 190);
    disk_cache_close(&c);
    c = open_cache(FILE_BYTES - 1,
                   &warnings); /* what can never fit is not kept, and pushes nobody out */
    keep(c, 500);
    CHECK(!finds(c, 500) && dir_bytes(&n) > 0);
    disk_cache_close(&c);
    CHECK_EQ(warnings.n, 0);
}

TEST(only_entries_are_ever_removed)
{
    static const char *const others[] = { "notes.txt", "rows-12.pvc", "rows-.pvc", "x.tmp1" };
    struct warnings warnings = { 0 };
    struct disk_cache *c;
    struct timeval old[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
    char path[600], left[640], young[640];
    int n;
    fresh_dir("others");
    c = open_cache(2 * FILE_BYTES, &warnings);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(path, sizeof path, "%s/%s", dir_path, others[i]);
        make_write(path, "x", 1);
        CHECK(!utimes(path, old));
    }
    path_of(path, 77); /* a writer died; another is at work */
    snprintf(left, sizeof left, "%s.tmp000123", path);
    snprintf(young, sizeof young, "%s.tmp000124", path);
    make_write(left, "x", 1);
    CHECK(!utimes(left, old));
    make_write(young, "x", 1);
    for (int i = 0; i < 20; i++)
        keep(c, i);
    dir_bytes(&n);
    CHECK(n >= 6 && n <= 7);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(path, sizeof path, "%s/%s", dir_path, others[i]);
        CHECK_MSG(access(path, F_OK) == 0, "%s", others[i]);
    }
    CHECK(access(left, F_OK) != 0 && access(young, F_OK) == 0);
    disk_cache_close(&c);
}

/* Its length alone shows that it is damaged. */
TEST(a_file_of_another_size_costs_no_memory)
{
    struct warnings warnings = { 0 };
    struct disk_cache *c;
    size_t before;
    char path[512];
    fresh_dir("large");
    c = open_cache(0, &warnings);
    path_of(path, 5);
    make_write(path, "PVCACHE\n", 8);
    CHECK(!truncate(path, (off_t)1 << 30));
    before = mem_bytes();
    mem_peak_reset();
    CHECK(!finds(c, 5));
    CHECK_MSG(mem_peak() < before + 10000, "%zu bytes for a file of 1 GiB", mem_peak() - before);
    CHECK(warnings.n == 1 && strstr(warnings.last, "1073741824 bytes, 1096 were expected"));
    CHECK(access(path, F_OK) != 0);
    disk_cache_close(&c);
}

/* A directory with an entry's name is told once, and stands in the way of this entry alone. */
TEST(a_directory_in_the_place_of_an_entry)
{
    struct warnings warnings = { 0 };
    struct disk_cache *c;
    uint8_t key[DIGEST_SIZE];
    char path[512];
    fresh_dir("in_the_way");
    c = open_cache(0, &warnings);
    path_of(path, 5);
    CHECK(!mkdir(path, 0700));
    make_key(key, 5);
    CHECK(!disk_cache_has(c, DISK_ROWS, key) && !finds(c, 5));
    CHECK_EQ(warnings.n, 0);
    keep(c, 5);
    keep(c, 6);
    keep(c, 5);
    CHECK(!finds(c, 5) && finds(c, 6));
    CHECK(warnings.n == 1 && strstr(warnings.last, path) && strstr(warnings.last, "not a file"));
    CHECK(!rmdir(path));
    keep(c, 5);
    CHECK(finds(c, 5));
    CHECK_EQ(warnings.n, 1);
    disk_cache_close(&c);
}

/* Make the files of entries 0 .. n - 1 mount points, which cannot be removed. */
static bool hold_files(int n)
{
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) && unshare(CLONE_NEWNS))
        return false;
    for (int i = 0; i < n; i++) {
        char path[512];
        path_of(path, i);
        if (mount(path, path, NULL, MS_BIND, NULL))
            return false;
    }
    return true;
}

/* In a process of its own, which ends with it. */
static int fill_beside_held_files(void)
{
    struct warnings warnings = { 0 };
    struct disk_cache *c = open_cache(4 * FILE_BYTES, &warnings);
    int n;
    for (int i = 0; i < 3; i++)
        keep(c, i);
    if (!hold_files(3))
        return 77;
    for (int i = 3; i < 12; i++)
        keep(c, i);
    CHECK(finds(c, 0) && finds(c, 1) && finds(c, 2));
    CHECK_EQ(dir_bytes(&n), 4 * FILE_BYTES);
    CHECK_EQ(disk_cache_counts(c).removed, 8); /* of 3 to 11, all but the last */
    disk_cache_close(&c);
    return test_bad_checks ? 1 : 0;
}

TEST(files_that_cannot_be_removed_take_room)
{
    pid_t child;
    int status = 0;
    fresh_dir("held");
    fflush(NULL);
    child = fork();
    if (child == 0)
        _exit(fill_beside_held_files());
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        test_skip("this user may not mount");
    else
        CHECK_EQ(WEXITSTATUS(status), 0);
}

/* One of two processes on one directory. */
struct writer {
    uint64_t seed;
    int found;
};

static void *write_and_read(void *arg)
{
    struct writer *w = arg;
    struct warnings warnings = { 0 };
    struct disk_cache *c = open_cache(20 * FILE_BYTES, &warnings);
    struct rng r = { w->seed };
    for (int i = 0; i < 2000; i++) {
        int n = (int)(rng_next(&r) % 40);
        if (rng_next(&r) % 2)
            keep(c, n);
        else
            w->found += finds(c, n);
    }
    disk_cache_close(&c);
    CHECK_MSG(warnings.n == 0, "%s", warnings.last);
    return NULL;
}

TEST(two_writers_share_a_directory)
{
    struct writer w[2] = { { .seed = test_seed }, { .seed = test_seed + 1 } };
    pthread_t other;
    int n;
    fresh_dir("shared");
    CHECK(!pthread_create(&other, NULL, write_and_read, &w[0]));
    write_and_read(&w[1]);
    pthread_join(other, NULL);
    CHECK(w[0].found > 100 && w[1].found > 100);
    CHECK(dir_bytes(&n) <= 40 * FILE_BYTES);
}

TEST(a_directory_that_cannot_be_used_is_named)
{
    struct pv_error err = { 0 };
    struct disk_cache_params p = { .dir = dir_path };
    struct disk_cache *c = NULL;
    char below[300];
    make_write(fresh_dir("file"), "x", 1);
    CHECK_EQ(disk_cache_open(&c, &p, &err), PV_E_IO);
    CHECK(!c && strstr(err.text, dir_path) && strstr(err.text, "not a directory"));
    snprintf(below, sizeof below, "%s/below", dir_path);
    p.dir = below;
    err = (struct pv_error){ 0 };
    CHECK_EQ(disk_cache_open(&c, &p, &err), PV_E_IO);
    CHECK(!c && strstr(err.text, below) && strstr(err.text, "cannot be created"));
    if (geteuid() != 0) {
        p.dir = fresh_dir("closed");
        CHECK(!mkdir(dir_path, 0500));
        err = (struct pv_error){ 0 };
        CHECK_EQ(disk_cache_open(&c, &p, &err), PV_E_IO);
        CHECK(!c && strstr(err.text, dir_path) && strstr(err.text, "cannot be written"));
    }
}

TEST(a_failing_disk_is_told_once)
{
    struct warnings warnings = { 0 };
    struct disk_cache *c;
    fresh_dir("gone");
    c = open_cache(0, &warnings);
    scratch_remove(dir_path);
    keep(c, 1);
    keep(c, 2);
    CHECK(warnings.n == 1 && strstr(warnings.last, "nothing more is written"));
    CHECK(!finds(c, 1));
    disk_cache_close(&c);
}

TEST(without_memory_nothing_is_found_and_nothing_breaks)
{
    struct warnings warnings = { 0 };
    struct disk_cache *c;
    size_t before = mem_bytes();
    fresh_dir("memory");
    c = open_cache(0, &warnings);
    keep(c, 1);
    for (uint64_t k = 1; k < 12; k++) {
        mem_fail_at(k);
        finds(c, 1);
        keep(c, 2);
        mem_fail_at(0);
    }
    CHECK(finds(c, 1));
    disk_cache_close(&c);
    CHECK_EQ(mem_bytes(), before);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
