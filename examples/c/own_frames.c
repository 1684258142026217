/* Ask about frames that your program made itself: from a camera, a renderer, another decoder.
 *
 *   cc own_frames.c -o own_frames $(pkg-config --cflags --libs prevue)
 *   ./own_frames MODEL.gguf
 *
 * Here a red disc moves from left to right over a grey background, for two seconds. */
#include <prevue/prevue.h>
#include <stdio.h>
#include <stdlib.h>

enum { FRAMES = 16, FPS = 8, SIDE = 128, RADIUS = 20 };

static void draw(uint8_t *rgb, int frame)
{
    int centre = RADIUS + frame * (SIDE - 2 * RADIUS) / (FRAMES - 1);

    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            int dx = x - centre, dy = y - SIDE / 2;
            bool disc = dx * dx + dy * dy < RADIUS * RADIUS;
            uint8_t *pixel = rgb + 3 * (y * SIDE + x);
            pixel[0] = disc ? 220 : 160;
            pixel[1] = disc ? 30 : 160;
            pixel[2] = disc ? 30 : 160;
        }
}

static bool print(void *user, const char *utf8, size_t len)
{
    return fwrite(utf8, 1, len, user) == len;
}

static enum pv_status ask(pv_session *session, const uint8_t *pixels, struct pv_error *err)
{
    struct pv_frame frames[FRAMES];
    struct pv_gen_params gen = pv_gen_defaults();
    enum pv_status status;

    for (int i = 0; i < FRAMES; i++)
        frames[i] = (struct pv_frame){ .index = i,
                                       .time = (double)i / FPS,
                                       .width = SIDE,
                                       .height = SIDE,
                                       .rgb = pixels + (size_t)i * SIDE * SIDE * 3 };
    gen.max_new_tokens = 64;
    status = pv_add_frames(session, frames, FRAMES, FPS, NULL, err); /* copies the pixels */
    if (!status)
        status = pv_add_text(session, "user", "Describe the video.", err);
    return status ? status : pv_generate(session, &gen, print, stdout, err);
}

int main(int argc, char **argv)
{
    struct pv_error err = { 0 };
    struct pv_model_params model_params = pv_model_defaults();
    struct pv_session_params session_params = pv_session_defaults();
    pv_model *model = NULL;
    pv_session *session = NULL;
    uint8_t *pixels = malloc((size_t)FRAMES * SIDE * SIDE * 3);

    if (argc != 2 || !pixels) {
        fprintf(stderr, "usage: own_frames MODEL\n");
        free(pixels);
        return 2;
    }
    for (int i = 0; i < FRAMES; i++)
        draw(pixels + (size_t)i * SIDE * SIDE * 3, i);
    model_params.path = argv[1];
    if (pv_model_open(&model, &model_params, &err) ||
        pv_session_open(&session, model, &session_params, &err) || ask(session, pixels, &err))
        fprintf(stderr, "own_frames: %s\n", err.text);
    printf("\n");
    pv_session_close(&session);
    pv_model_close(&model);
    free(pixels);
    return err.code != PV_OK;
}
