/* Forms that are uploaded: parts and their bytes, however they arrive. */
#include "base/buf.h"
#include "multipart.h"
#include "test.h"

#include <string.h>

static bool begin(void *user, const struct multipart_part *p)
{
    return buf_printf(user, "<%s,%s,%s>", p->name, p->file, p->type);
}

static bool take(void *user, const char *data, size_t size)
{
    return buf_add(user, data, size);
}

static bool end(void *user)
{
    return buf_puts(user, ";");
}

/* What is told of a body in pieces of so many bytes; the status of the end in *st. */
static const char *told(struct buf *b, const char *body, size_t piece, enum pv_status *st)
{
    static const struct multipart_calls calls = { begin, take, end };
    struct multipart m;
    size_t size = strlen(body);
    buf_reset(b);
    *st = multipart_init(&m, "multipart/form-data; boundary=xx", &calls, b, NULL);
    for (size_t at = 0; at < size && !*st; at += piece)
        *st = multipart_add(&m, body + at, size - at < piece ? size - at : piece, NULL);
    if (!*st)
        *st = multipart_end(&m, NULL);
    return b->data ? b->data : "";
}

static void check_told(const char *body, const char *expected, enum pv_status end_status)
{
    struct buf b;
    enum pv_status st;
    buf_init(&b, 1 << 16);
    for (size_t piece = 1; piece <= strlen(body); piece++) {
        const char *text = told(&b, body, piece, &st);
        if (expected)
            CHECK_STR(text, expected);
        CHECK_EQ(st, end_status);
    }
    buf_clear(&b);
}

#define FILE_HEAD                                                                                  \
    "Content-Disposition: form-data; name=\"file\"; filename=\"a.mp4\"\r\nContent-Type: "          \
    "video/mp4\r\n\r\n"

TEST(parts_are_told_however_they_arrive)
{
    check_told(
        "--xx\r\nContent-Disposition: form-data; name=purpose\r\n\r\nvision\r\n--xx\r\n" FILE_HEAD
        "bytes\r\n--xx--\r\n",
        "<purpose,,>vision;<file,a.mp4,video/mp4>bytes;", PV_OK);
}

TEST(data_that_resembles_a_boundary_is_data)
{
    check_told("--xx\r\n" FILE_HEAD "\r\n--x\r\n-\r\r\n--\r\n\r\n--xx--",
               "<file,a.mp4,video/mp4>\r\n--x\r\n-\r\r\n--\r\n;", PV_OK);
    check_told("--xx\r\n" FILE_HEAD "\r\n--xx--", "<file,a.mp4,video/mp4>;", PV_OK);
    check_told("before\r\n--xx\r\n\r\nno head\r\n--xx--after", "<,,>no head;", PV_OK);
}

TEST(forms_that_are_cut_off_or_malformed_are_refused)
{
    check_told("--xx\r\n" FILE_HEAD "bytes\r\n--x", NULL, PV_E_FORMAT);
    check_told("--xx\r\n" FILE_HEAD "bytes\r\n--xxy\r\n", NULL, PV_E_FORMAT);
    check_told("no form", "", PV_E_FORMAT);
}

TEST(the_type_must_have_a_boundary)
{
    static const struct multipart_calls calls = { begin, take, end };
    static const char *const bad[] = { NULL,
                                       "application/json",
                                       "multipart/form-data",
                                       "multipart/form-data; boundary=",
                                       "multipart/form-data; boundary=\"x",
                                       "multipart/form-data; "
                                       "boundary=01234567890123456789012345678901234567890123456789"
                                       "0123456789012345678901234567890" };
    struct multipart m;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(multipart_init(&m, bad[i], &calls, NULL, NULL) != PV_OK, "%s",
                  bad[i] ? bad[i] : "no type");
    CHECK_EQ(multipart_init(&m, "Multipart/Form-Data; x=y; Boundary=\"a b\"", &calls, NULL, NULL),
             PV_OK);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
