/* Run several requests at once on one engine, and print the words of each as they come.
 *
 *   cc stream_requests.c -o stream_requests $(pkg-config --cflags --libs prevue)
 *   ./stream_requests MODEL.gguf clip-1.mp4 clip-2.mp4
 *
 * One thread reads the events of all requests. Each answer is the one that it would be alone. */
#include <prevue/prevue.h>
#include <stdio.h>

enum { MAX_REQUESTS = 8 };

static enum pv_status submit(pv_engine *engine, const char *path, pv_request **out,
                             struct pv_error *err)
{
    struct pv_video_params video = pv_video_defaults();
    struct pv_gen_params gen = pv_gen_defaults();
    struct pv_part parts[2] = { { .path = path, .video = &video },
                                { .text = "Describe the video." } };
    struct pv_message message = { .role = "user", .parts = parts, .n_parts = 2 };
    struct pv_request_params params = pv_request_defaults();

    video.sandbox = PV_SANDBOX_IF_POSSIBLE;
    gen.max_new_tokens = 48;
    params.messages = &message;
    params.n_messages = 1;
    params.gen = &gen;
    return pv_request_submit(out, engine, &params, err); /* decodes the video, then returns */
}

/* Print what has come since the last time; true at the end. */
static bool take_events(pv_request *request, int number, bool *failed)
{
    struct pv_event event;

    while (pv_request_next(request, &event, 0.01)) {
        if (event.kind == PV_EVENT_TEXT && event.len > 0)
            printf("%d: %.*s\n", number, (int)event.len, event.text);
        if (event.kind != PV_EVENT_END)
            continue;
        if (event.finish == PV_FINISH_ERROR) {
            fprintf(stderr, "stream_requests: %s\n", event.message);
            *failed = true;
        }
        printf("%d: [%s]\n", number, event.finish == PV_FINISH_LENGTH ? "length" : "end");
        return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    struct pv_error err = { 0 };
    struct pv_model_params model_params = pv_model_defaults();
    struct pv_engine_params engine_params = pv_engine_defaults();
    pv_model *model = NULL;
    pv_engine *engine = NULL;
    pv_request *requests[MAX_REQUESTS] = { 0 };
    bool ended[MAX_REQUESTS] = { 0 }, failed = false;
    int n = argc - 2, left;

    if (n < 1 || n > MAX_REQUESTS) {
        fprintf(stderr, "usage: stream_requests MODEL VIDEO... (at most %d)\n", MAX_REQUESTS);
        return 2;
    }
    model_params.path = argv[1];
    engine_params.max_context = 8192;
    engine_params.kv_tokens = 8192 * n;
    failed = pv_model_open(&model, &model_params, &err) ||
             pv_engine_open(&engine, model, &engine_params, &err);
    for (int i = 0; i < n && !failed; i++)
        failed = submit(engine, argv[2 + i], &requests[i], &err) != PV_OK;
    if (failed)
        fprintf(stderr, "stream_requests: %s\n", err.text);
    for (left = failed ? 0 : n; left > 0;)
        for (int i = 0; i < n; i++)
            if (!ended[i] && take_events(requests[i], i + 1, &failed)) {
                ended[i] = true;
                left--;
            }
    for (int i = 0; i < n; i++)
        pv_request_close(&requests[i]); /* cancels what still runs */
    pv_engine_close(&engine);
    pv_model_close(&model);
    return failed;
}
