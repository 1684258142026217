/* Data URLs and base64. */
#include "data_url.h"
#include "test.h"

#include "base/mem.h"

#include <string.h>

static enum pv_status parse(struct data_url *u, const char *url, uint64_t limit)
{
    return data_url_parse(u, url, strlen(url), limit, NULL);
}

TEST(the_type_and_the_bytes_are_found)
{
    struct data_url u;
    CHECK_EQ(parse(&u, "data:Video/MP4;codecs=avc1;base64,AAEC/w==", 100), PV_OK);
    CHECK_STR(u.type, "video/mp4");
    CHECK(u.size == 4 && !memcmp(u.data, "\0\1\2\377", 4));
    data_url_clear(&u);
    CHECK_EQ(parse(&u, "data:;base64,", 100), PV_OK);
    CHECK(u.size == 0 && u.type[0] == 0);
    data_url_clear(&u);
    CHECK_EQ(parse(&u, "data:image/png;base64,AA\nEC _-8", 100), PV_OK); /* the URL alphabet */
    CHECK(u.size == 5 && !memcmp(u.data, "\0\1\2\377\357", 5));
    data_url_clear(&u);
}

TEST(what_is_no_base64_is_refused)
{
    static const char *const bad[] = {
        "data:video/mp4,abc", "data:video/mp4;base64", "http://x/,",         "data:x;base64,A",
        "data:x;base64,AA=A", "data:x;base64,AA===",   "data:x;base64,A!AA", ""
    };
    struct data_url u;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(parse(&u, bad[i], 100) == PV_E_FORMAT, "%s", bad[i]);
}

TEST(the_limit_is_on_the_bytes)
{
    struct data_url u;
    char url[4200] = "data:x;base64,";
    CHECK_EQ(parse(&u, "data:x;base64,AAAA", 3), PV_OK);
    data_url_clear(&u);
    CHECK_EQ(parse(&u, "data:x;base64,AAAAAA==", 3), PV_E_LIMIT);
    memset(url + strlen(url), 'A', 4000);
    CHECK_EQ(parse(&u, url, 100), PV_E_LIMIT); /* before memory is taken for it */
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
