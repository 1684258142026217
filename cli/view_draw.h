/* Drawing into RGB pictures: rectangles, letters, frames under what a view keeps of them. */
#ifndef PV_CLI_VIEW_DRAW_H
#define PV_CLI_VIEW_DRAW_H

#include "prevue/prevue.h"

struct canvas {
    int width, height;
    uint8_t *rgb; /* [height, width, 3], owned */
};

struct colour {
    uint8_t r, g, b;
};

struct rect {
    int x, y, width, height;
};

/* Of one colour; canvas_close when done. */
enum pv_status canvas_open(struct canvas *c, int width, int height, struct colour ground,
                           struct pv_error *err);
void canvas_close(struct canvas *c);

/* What lies outside the canvas is left out. `share`: of the colour, the rest is what was there. */
void draw_rect(struct canvas *c, struct rect at, struct colour ink, double share);

enum { GLYPH_WIDTH = 5, GLYPH_HEIGHT = 8, GLYPH_ADVANCE = 6 };
bool glyph_pixel(char c, int x, int y); /* within GLYPH_WIDTH and GLYPH_HEIGHT */
/* Pixels `scale` wide; y is the top of capitals. Each character that is not ASCII is one box. */
void draw_text(struct canvas *c, int x, int y, int scale, struct colour ink, const char *utf8);
int text_width(const char *utf8, int scale);
/* One line from x, y: as many characters as fit into `width`, then dots where not all do. */
void draw_fitted(struct canvas *c, int x, int y, int width, int scale, struct colour ink,
                 const char *utf8);

/* The picture in the size of `to`: each pixel is the mean of what it covers. */
void draw_picture(struct canvas *to, int width, int height, const uint8_t *rgb);

/* A frame [rows, columns] of tokens, each `cell_h` x `cell_w` pixels: the picture, which has that
 * size, at x, y. Without `visible` and `heat` it is drawn plain. */
struct tile {
    int rows, columns, cell_w, cell_h;
    const bool *visible; /* [rows, columns]: the others are grey and dark; may be NULL */
    const float *heat; /* [rows, columns], 0 to 1 (more is 1): over the grey picture; may be NULL */
};
void draw_tile(struct canvas *c, int x, int y, const struct canvas *picture, const struct tile *t);

/* From dark violet over red to light yellow; equal steps of t, 0 to 1, look equally large. */
struct colour heat_colour(double t);

#endif
