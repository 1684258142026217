/* Draws into RGB pictures: rectangles, text, and frames with the tokens that a view keeps. */
#ifndef PV_LAB_VIEW_DRAW_H
#define PV_LAB_VIEW_DRAW_H

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

/* A canvas filled with one colour; release it with canvas_close. */
enum pv_status canvas_open(struct canvas *c, int width, int height, struct colour ground,
                           struct pv_error *err);
void canvas_close(struct canvas *c);

/* Clipped to the canvas. `share`: opacity of the colour, 0 to 1. */
void draw_rect(struct canvas *c, struct rect at, struct colour ink, double share);

enum { GLYPH_WIDTH = 5, GLYPH_HEIGHT = 8, GLYPH_ADVANCE = 6 };
bool glyph_pixel(char c, int x, int y); /* within GLYPH_WIDTH and GLYPH_HEIGHT */
/* Each pixel of a glyph is `scale` wide; y is the top of capitals. Characters outside ASCII are
 * drawn as boxes. */
void draw_text(struct canvas *c, int x, int y, int scale, struct colour ink, const char *utf8);
int text_width(const char *utf8, int scale);
/* One line from x, y, shortened with dots if it is wider than `width`. */
void draw_fitted(struct canvas *c, int x, int y, int width, int scale, struct colour ink,
                 const char *utf8);

/* Scale the picture to the size of `to`: each pixel is the mean of the area that it covers. */
void draw_picture(struct canvas *to, int width, int height, const uint8_t *rgb);

/* A frame of [rows, columns] tokens of `cell_h` x `cell_w` pixels each. draw_tile draws the
 * picture, which has that size, at x, y; unchanged if `visible` and `heat` are NULL. */
struct tile {
    int rows, columns, cell_w, cell_h;
    const bool *visible; /* [rows, columns]: the others are grey and dark; may be NULL */
    const float *heat; /* [rows, columns], 0 to 1 (more is 1): over the grey picture; may be NULL */
};
void draw_tile(struct canvas *c, int x, int y, const struct canvas *picture, const struct tile *t);

/* A perceptually uniform colour scale for t from 0 to 1: dark violet, red, light yellow. */
struct colour heat_colour(double t);

#endif
