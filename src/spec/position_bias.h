/* Where in the picture and in time the tokens are that a view keeps. Attention is known to favour
 * the edges of the grid, where little happens. */
#ifndef PV_SPEC_POSITION_BIAS_H
#define PV_SPEC_POSITION_BIAS_H

/* Shares of tokens, 0 to 1: those in the first or last tenth of a frame's rows, and those in the
 * first or last tenth of the frames. A tenth is rounded up, so the shares of all tokens, which a
 * view without a bias would have, are more than a fifth. */
struct position_bias {
    double kept_rows, kept_frames; /* among the tokens that the view keeps; 0: it keeps none */
    double all_rows, all_frames;   /* among all video tokens */
};

/* grid_width: tokens of one row of a frame; divides frame_tokens. */
struct position_bias position_bias_of(const int *kept, int n, int n_frames, int frame_tokens,
                                      int grid_width);

#endif
