/* Describe a video, printing the words as they come.
 *
 *   cc describe_clip.c -o describe_clip $(pkg-config --cflags --libs prevue)
 *   ./describe_clip MODEL.gguf clip.mp4 "What happens?"
 *
 * A session is one conversation. Here it has one question; ask_many.c asks several. */
#include <prevue/prevue.h>
#include <stdio.h>

static bool print(void *user, const char *utf8, size_t len)
{
    bool written = fwrite(utf8, 1, len, user) == len;
    return written && fflush(user) == 0; /* false stops the answer */
}

int main(int argc, char **argv)
{
    struct pv_error err = { 0 };
    struct pv_model_params model_params = pv_model_defaults();
    struct pv_session_params session_params = pv_session_defaults();
    struct pv_video_params video = pv_video_defaults();
    struct pv_gen_params gen = pv_gen_defaults();
    pv_model *model = NULL;
    pv_session *session = NULL;

    if (argc < 3) {
        fprintf(stderr, "usage: describe_clip MODEL VIDEO [QUESTION]\n");
        return 2;
    }
    model_params.path = argv[1];            /* a GGUF file or a Hugging Face directory */
    video.sandbox = PV_SANDBOX_IF_POSSIBLE; /* decode in a helper process */
    gen.max_new_tokens = 128;
    /* The first call that fails ends the chain; err.text has its sentence. */
    if (pv_model_open(&model, &model_params, &err) ||
        pv_session_open(&session, model, &session_params, &err) ||
        pv_add_video(session, argv[2], &video, NULL, &err) ||
        pv_add_text(session, "user", argc > 3 ? argv[3] : "Describe the video.", &err) ||
        pv_generate(session, &gen, print, stdout, &err))
        fprintf(stderr, "describe_clip: %s\n", err.text);
    else
        printf("\n");
    pv_session_close(&session);
    pv_model_close(&model);
    return err.code != PV_OK;
}
