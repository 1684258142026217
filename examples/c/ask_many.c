/* Ask several questions about one clip. The video is decoded and read once: later questions reuse
 * it.
 *
 *   cc ask_many.c -o ask_many $(pkg-config --cflags --libs prevue)
 *   ./ask_many MODEL.gguf clip.mp4 "What happens?" "How many people are there?" */
#include <prevue/prevue.h>
#include <stdio.h>

static bool print(void *user, const char *utf8, size_t len)
{
    return fwrite(utf8, 1, len, user) == len;
}

/* One question and its answer, which become part of the conversation. */
static enum pv_status ask(pv_session *session, const char *question, struct pv_error *err)
{
    struct pv_gen_params gen = pv_gen_defaults();
    struct pv_stats stats = { .size = sizeof stats };
    enum pv_status status;

    gen.max_new_tokens = 64;
    printf("> %s\n", question);
    status = pv_add_text(session, "user", question, err);
    if (!status)
        status = pv_generate(session, &gen, print, stdout, err);
    if (status)
        return status;
    pv_session_stats(session, &stats);
    printf("\n  (%d of %d prompt tokens were there already, %.2f s)\n", (int)stats.reused_tokens,
           (int)stats.prompt_tokens, stats.vision_s + stats.prefill_s + stats.decode_s);
    return PV_OK;
}

int main(int argc, char **argv)
{
    struct pv_error err = { 0 };
    struct pv_model_params model_params = pv_model_defaults();
    struct pv_session_params session_params = pv_session_defaults();
    struct pv_video_params video = pv_video_defaults();
    struct pv_video_info info;
    pv_model *model = NULL;
    pv_session *session = NULL;
    enum pv_status status;

    if (argc < 4) {
        fprintf(stderr, "usage: ask_many MODEL VIDEO QUESTION...\n");
        return 2;
    }
    model_params.path = argv[1];
    video.sandbox = PV_SANDBOX_IF_POSSIBLE;
    status = pv_model_open(&model, &model_params, &err);
    if (!status)
        status = pv_session_open(&session, model, &session_params, &err);
    if (!status)
        status = pv_add_video(session, argv[2], &video, &info, &err);
    if (!status)
        printf("%s: %d x %d, %.1f s, %d frames taken\n", argv[2], info.width, info.height,
               info.duration, info.frames);
    for (int i = 3; i < argc && !status; i++)
        status = ask(session, argv[i], &err);
    if (status)
        fprintf(stderr, "ask_many: %s\n", err.text);
    pv_session_close(&session);
    pv_model_close(&model);
    return status != PV_OK;
}
