/* Mapping and writing files. */
#include "base/file.h"
#include "base/mem.h"
#include "make_file.h"
#include "scratch.h"
#include "test.h"

#include <errno.h>

static const char *in_scratch(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", scratch_dir(), name);
    return path;
}

static int files_in_scratch(void)
{
    DIR *d = opendir(scratch_dir());
    int n = 0;
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

TEST(maps_a_file)
{
    struct file_map map;
    struct pv_error err = { 0 };

    make_write(in_scratch("five"), "hello", 5);
    CHECK_EQ(file_map_open(&map, in_scratch("five"), 5, &err), PV_OK);
    CHECK(map.size == 5 && !memcmp(map.data, "hello", 5));
    file_map_close(&map);
    CHECK(map.data == NULL && map.size == 0);
    CHECK_EQ(file_map_open(&map, in_scratch("five"), 4, &err), PV_E_LIMIT);
    CHECK_MSG(strstr(err.text, "5 bytes") && strstr(err.text, "4"), "%s", err.text);
    make_write(in_scratch("empty"), "", 0);
    CHECK_EQ(file_map_open(&map, in_scratch("empty"), 4, NULL), PV_OK);
    CHECK(map.data == NULL && map.size == 0);
    file_map_close(&map);
}

TEST(refuses_what_is_no_file)
{
    struct file_map map = { .size = 77 };
    struct pv_error err = { 0 };

    CHECK_EQ(file_map_open(&map, in_scratch("missing"), 100, &err), PV_E_IO);
    CHECK(strstr(err.text, "missing") && strstr(err.text, strerror(ENOENT)));
    CHECK_EQ(file_map_open(&map, scratch_dir(), 100, NULL), PV_E_IO);
    CHECK_EQ(mkfifo(in_scratch("fifo"), 0600), 0);
    CHECK_EQ(file_map_open(&map, in_scratch("fifo"), 100, NULL), PV_E_IO); /* and does not wait */
    CHECK_EQ(map.size, 77);                                                /* untouched */
    CHECK(file_exists(in_scratch("fifo")) && !file_exists(in_scratch("missing")));
    CHECK(file_is_dir(scratch_dir()) && !file_is_dir(in_scratch("fifo")));
    unlink(in_scratch("fifo"));
}

TEST(writes_and_commits)
{
    struct file_out o;
    struct file_map map;
    struct stat st;
    mode_t mask = umask(022);

    make_write(in_scratch("out"), "old", 3);
    CHECK_EQ(file_out_open(&o, in_scratch("out"), NULL), PV_OK);
    CHECK_EQ(file_out_write(&o, "new ", 4, NULL), PV_OK);
    CHECK_EQ(file_map_open(&map, in_scratch("out"), 100, NULL), PV_OK);
    CHECK_EQ(map.size, 3); /* the old file is there until the commit */
    file_map_close(&map);
    CHECK_EQ(file_out_write(&o, "text", 4, NULL), PV_OK);
    CHECK_EQ(file_out_commit(&o, NULL), PV_OK);
    CHECK_EQ(file_map_open(&map, in_scratch("out"), 100, NULL), PV_OK);
    CHECK(map.size == 8 && !memcmp(map.data, "new text", 8));
    file_map_close(&map);
    CHECK(stat(in_scratch("out"), &st) == 0 && (st.st_mode & 0777) == 0644);
    CHECK(!file_out_open_private(&o, in_scratch("out"), NULL) && !file_out_commit(&o, NULL));
    CHECK(stat(in_scratch("out"), &st) == 0 && (st.st_mode & 0777) == 0600);
    umask(mask);
}

TEST(abandoning_leaves_nothing)
{
    struct file_out o;
    int before = files_in_scratch();

    CHECK_EQ(file_out_open(&o, in_scratch("never"), NULL), PV_OK);
    CHECK_EQ(files_in_scratch(), before + 1);
    CHECK_EQ(file_out_write(&o, "x", 1, NULL), PV_OK);
    file_out_abandon(&o);
    CHECK_EQ(files_in_scratch(), before);
}

TEST(writing_fails_clearly)
{
    struct file_out o;
    struct pv_error err = { 0 };
    int before = files_in_scratch();

    CHECK_EQ(file_out_open(&o, in_scratch("no/such/dir"), &err), PV_E_IO);
    CHECK(strstr(err.text, "no/such/dir"));
    CHECK_EQ(file_out_open(&o, "/dev/null", &err), PV_E_IO); /* a device is not replaced */
    CHECK_EQ(file_out_open(&o, scratch_dir(), &err), PV_E_IO);
    for (int k = 1; k <= 2; k++) {
        mem_fail_at((uint64_t)k);
        CHECK_EQ(file_out_open(&o, in_scratch("never"), NULL), PV_E_NOMEM);
        mem_fail_at(0);
    }
    CHECK_EQ(files_in_scratch(), before);
    /* The directory goes away between opening and commit. */
    CHECK_EQ(mkdir(in_scratch("gone"), 0700), 0);
    CHECK_EQ(file_out_open(&o, in_scratch("gone/file"), NULL), PV_OK);
    scratch_remove(in_scratch("gone"));
    err = (struct pv_error){ 0 };
    CHECK_EQ(file_out_commit(&o, &err), PV_E_IO);
    CHECK(err.text[0]);
}

TEST(joins_paths)
{
    char *p = path_join("dir", "name");
    CHECK_STR(p, "dir/name");
    mem_free(p);
    p = path_join("dir/", "name");
    CHECK_STR(p, "dir/name");
    mem_free(p);
    p = path_join("", "name");
    CHECK_STR(p, "name");
    mem_free(p);
    mem_fail_at(1);
    CHECK(path_join("a", "b") == NULL);
    mem_fail_at(0);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
