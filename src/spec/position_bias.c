/* The position-bias statistic of a view, after HIPPO's: shares of tokens at the edges. */
#include "spec/position_bias.h"

#include <stdbool.h>

/* Of `n` lines, the first and last tenth. */
static bool at_edge(int line, int n)
{
    int edge = (n + 9) / 10;
    return line < edge || line >= n - edge;
}

static double edge_share(int n)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        count += at_edge(i, n);
    return n > 0 ? (double)count / n : 0;
}

struct position_bias position_bias_of(const int *kept, int n, int n_frames, int frame_tokens,
                                      int grid_width)
{
    int height = frame_tokens > 0 ? frame_tokens / grid_width : 0, rows = 0, frames = 0;
    struct position_bias b = { .all_rows = edge_share(height), .all_frames = edge_share(n_frames) };
    for (int i = 0; i < n; i++) {
        rows += at_edge(kept[i] % frame_tokens / grid_width, height);
        frames += at_edge(kept[i] / frame_tokens, n_frames);
    }
    if (n > 0) {
        b.kept_rows = (double)rows / n;
        b.kept_frames = (double)frames / n;
    }
    return b;
}
