/* The streaming detokeniser: whole characters only, whatever the tokens cut through. */
#include "text/detok.h"

#include "base/utf8.h"
#include "test.h"

/* Token i is the byte i, spelled in its byte character; then a control and an added token. */
enum { CONTROL_ID = 256, ADDED_ID = 257, N_TOKENS = 258 };

static char spelling[256][2];
static struct str tokens[N_TOKENS];
static uint8_t kinds[N_TOKENS];
static struct vocab byte_vocab;

static struct tokenizer *byte_tokenizer(void)
{
    struct tokenizer *t = NULL;
    uint32_t next = 0x100;

    for (int b = 0; b < 256; b++) {
        bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        uint32_t cp = printable ? (uint32_t)b : next++;
        tokens[b] = (struct str){ spelling[b], (uint32_t)utf8_encode(spelling[b], cp) };
        kinds[b] = TOKEN_NORMAL;
    }
    tokens[CONTROL_ID] = (struct str){ "<|end|>", 7 };
    kinds[CONTROL_ID] = TOKEN_CONTROL;
    tokens[ADDED_ID] = (struct str){ "<call>", 6 };
    kinds[ADDED_ID] = TOKEN_ADDED;
    byte_vocab = (struct vocab){
        .n_tokens = N_TOKENS, .token = tokens, .kind = kinds, .pre = "qwen2", .chat_template = ""
    };
    CHECK_EQ(tokenizer_open(&t, &byte_vocab, NULL), PV_OK);
    return t;
}

/* Push the bytes one token each; every piece that comes out must be valid UTF-8. */
static void check_bytes(const char *bytes, const char *want)
{
    struct tokenizer *t = byte_tokenizer();
    struct detok d;
    struct buf all, piece;

    buf_init(&all, 4096);
    buf_init(&piece, 4096);
    detok_init(&d, t);
    for (const char *p = bytes; *p; p++) {
        buf_reset(&piece);
        CHECK(detok_push(&d, (unsigned char)*p, &piece));
        CHECK(utf8_valid(piece.data, piece.len));
        buf_add(&all, piece.data, piece.len);
    }
    CHECK(detok_flush(&d, &all));
    CHECK(detok_flush(&d, &all)); /* nothing twice */
    buf_add(&all, "", 0);
    CHECK_STR(all.data, want);
    buf_clear(&all);
    buf_clear(&piece);
    tokenizer_close(&t);
}

#define FFFD "\xef\xbf\xbd"

TEST(characters)
{
    check_bytes("", "");
    check_bytes("plain text\n", "plain text\n");
    check_bytes("\xc3\xa9\xe4\xbd\xa0\xf0\x9f\x98\x80", "\xc3\xa9\xe4\xbd\xa0\xf0\x9f\x98\x80");
}

/* As Python's errors="replace": one U+FFFD for each longest beginning of a character. */
TEST(broken_sequences)
{
    check_bytes("\xff", FFFD);
    check_bytes("a\x80z", "a" FFFD "z");
    check_bytes("\xe4\xbd", FFFD);
    check_bytes("\xe4\xbdz", FFFD "z");
    check_bytes("\xf0\x9f\x98", FFFD);
    check_bytes("\xf0\x9f\xe4\xbd\xa0", FFFD "\xe4\xbd\xa0");
    check_bytes("\xc3\xc3\xa9", FFFD "\xc3\xa9");
    check_bytes("\xed\xa0\x80", FFFD FFFD FFFD); /* a surrogate */
    check_bytes("\xf4\x90\x80\x80", FFFD FFFD FFFD FFFD);
    check_bytes("\xc0\xaf", FFFD FFFD);
}

TEST(held_back)
{
    struct tokenizer *t = byte_tokenizer();
    struct detok d;
    struct buf out;

    buf_init(&out, 64);
    detok_init(&d, t);
    CHECK(detok_push(&d, 0xe4, &out));
    CHECK(detok_push(&d, 0xbd, &out));
    CHECK_EQ(out.len, 0);
    /* Tokens that show nothing do not end a character. */
    CHECK(detok_push(&d, CONTROL_ID, &out));
    CHECK(detok_push(&d, -1, &out));
    CHECK(detok_push(&d, N_TOKENS, &out));
    CHECK_EQ(out.len, 0);
    CHECK(detok_push(&d, 0xa0, &out));
    CHECK_STR(out.data, "\xe4\xbd\xa0");
    CHECK(detok_push(&d, ADDED_ID, &out));
    CHECK_STR(out.data, "\xe4\xbd\xa0<call>");
    buf_clear(&out);
    tokenizer_close(&t);
}

TEST(full_buffer)
{
    struct tokenizer *t = byte_tokenizer();
    struct detok d;
    struct buf out;

    buf_init(&out, 3);
    detok_init(&d, t);
    CHECK(detok_push(&d, 'a', &out));
    CHECK(!detok_push(&d, ADDED_ID, &out));
    buf_clear(&out);
    tokenizer_close(&t);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
