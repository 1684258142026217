/* The texts between the runs of a video, in the prompt as a session lays it out: the times of the
 * frames that were chosen, counted from the beginning of the file. Wanted texts were made by
 * sample_frames and _calculate_timestamps of Qwen3-VL's processors in transformers 5.22, from 40
 * frames at 25 a second. */
#include "answers.h"
#include "text/tokenizer.h"

static const char clip[] = "tests/data/video/bframes.mp4";

/* The prompt as text, a star for each run of a media item. */
static const char *said(const pv_session *s)
{
    static char text[4096];
    const struct timeline *t = &s->seq.line;
    size_t at = 0, len;
    for (int i = 0; i < t->n; i++) {
        int row = 0;
        const struct media_item *m = timeline_item(t, i, &row);
        const char *bytes = m ? "*" : tokenizer_bytes(s->model->tokenizer, t->ids[i], &len);
        if (m)
            len = row % m->m.run_rows == 0;
        if (!CHECK(bytes && at + len < sizeof text))
            break;
        memcpy(text + at, bytes, len);
        at += len;
    }
    text[at] = 0;
    return text;
}

/* What stands between the role and the question. */
static void check_clip(pv_session *s, const struct pv_video_params *p, const char *want)
{
    char around[600];
    struct pv_video_info info = { 0 };
    struct pv_error err = { 0 };
    pv_session_reset(s);
    CHECK_MSG(!pv_add_video(s, clip, p, &info, &err) && !pv_add_text(s, "user", "what?", &err),
              "%s", err.text);
    CHECK_EQ(info.total_frames, 40);
    CHECK_EQ(info.fps, 25.0);
    snprintf(around, sizeof around, "<|im_start|>user\n%swhat?<|im_end|>", want);
    CHECK_MSG(strstr(said(s), around), "%s", said(s));
}

#define RUN "<|vision_start|>*<|vision_end|>"

TEST(qwen3_tells_the_times_of_pairs)
{
    struct pair p = open_unlike(&family_qwen3_vl, 1);
    pv_session *s = open_session(&p);
    struct pv_video_params v = pv_video_defaults();
    v.max_pixels = 16 * 16;
    check_clip(s, &v, "<0.3 seconds>" RUN "<1.3 seconds>" RUN);
    v.frames = 7; /* the last one twice */
    check_clip(s, &v,
               "<0.1 seconds>" RUN "<0.7 seconds>" RUN "<1.2 seconds>" RUN "<1.6 seconds>" RUN);
    v.frames = 0;
    v.fps = 5;
    check_clip(s, &v,
               "<0.1 seconds>" RUN "<0.6 seconds>" RUN "<1.0 seconds>" RUN "<1.4 seconds>" RUN);
    v = pv_video_defaults();
    v.max_pixels = 16 * 16;
    v.frames = 2; /* 25 and 39, which are at 1 and 1.56 seconds */
    v.start = 1;
    check_clip(s, &v, "<1.3 seconds>" RUN);
    pv_session_close(&s);
    close_pair(&p);
}

/* Frames from memory are all there are, at the rate that is told. */
TEST(frames_from_memory)
{
    static struct pv_frame frames[FRAMES];
    static uint8_t rgb[FRAMES][HEIGHT * WIDTH * 3];
    struct pair p = open_unlike(&family_qwen3_vl, 1);
    pv_session *s = open_session(&p);
    struct pv_video_params v = pv_video_defaults();
    struct pv_error err = { 0 };
    noise_frames(frames, rgb, 1);
    v.max_pixels = 16 * 16;
    CHECK_MSG(!pv_add_frames(s, frames, FRAMES, 2, &v, &err) &&
                  !pv_add_frames(s, frames, 1, 0, &v, &err) &&
                  !pv_add_frames(s, frames, 1, 4, &v, &err) &&
                  !pv_add_text(s, "user", "what?", &err),
              "%s", err.text);
    CHECK_MSG(strstr(said(s), "user\n<0.2 seconds>" RUN "<1.2 seconds>" RUN "<2.0 seconds>" RUN RUN
                              "<0.0 seconds>" RUN "what?"),
              "%s", said(s));
    pv_session_close(&s);
    close_pair(&p);
}

/* Other families write a video in one piece. */
TEST(others_tell_no_times)
{
    for (int i = 1; i < TINY_KINDS; i++) {
        struct pair p = open_unlike(tiny_kinds[i].family, 1);
        pv_session *s = open_session(&p);
        struct pv_video_params v = pv_video_defaults();
        v.max_pixels = 16 * 16;
        if (!tiny_kinds[i].family->media->caption)
            check_clip(s, &v, tiny_kinds[i].family == &family_salmonn2_plus ? RUN "\n" : RUN);
        pv_session_close(&s);
        close_pair(&p);
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
