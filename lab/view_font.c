/* The letters of pictures: printable ASCII in cells of 5 x 8, the last row for descenders. A glyph
 * is eight letters, one a row from the top: A is 0 ... Z is 25, a is 26 ... f is 31, the leftmost
 * pixel the highest of five bits. */
#include "view_draw.h"

enum { FIRST = ' ', LAST = '~' };

static const char glyphs[LAST - FIRST + 1][GLYPH_HEIGHT + 1] = {
    "AAAAAAAA", "EEEEEAEA", "KKKAAAAA", "KKfKfKKA", "EPUOFeEA", "YZCEITDA", "MSUIVSNA", "EEIAAAAA",
    "CEIIIECA", "IECCCEIA", "AEVOVEAA", "AEEfEEAA", "AAAAAMEI", "AAAfAAAA", "AAAAAMMA", "BBCEIQQA",
    "ORRRRROA", "EMEEEEOA", "ORBGIQfA", "ORBGBROA", "CGKSfCCA", "fQeBBROA", "GIQeRROA", "fBCEEIIA",
    "ORRORROA", "ORRPBCMA", "AMMAMMAA", "AMMAMEIA", "CEIQIECA", "AAfAfAAA", "IECBCEIA", "ORBCEAEA",
    "ORXVXQOA", "EKRRfRRA", "eRReRReA", "ORQQQROA", "cSRRRScA", "fQQeQQfA", "fQQeQQQA", "ORQXRRPA",
    "RRRfRRRA", "OEEEEEOA", "HCCCCSMA", "RSUYUSRA", "QQQQQQfA", "RbVVRRRA", "RZZVTTRA", "ORRRRROA",
    "eRReQQQA", "ORRRVSNA", "eRReUSRA", "PQQOBBeA", "fEEEEEEA", "RRRRRROA", "RRRRRKEA", "RRRVVVKA",
    "RRKEKRRA", "RRKEEEEA", "fBCEIQfA", "OIIIIIOA", "QQIECBBA", "OCCCCCOA", "EKRAAAAA", "AAAAAAAf",
    "IECAAAAA", "AAOBPRPA", "QQWZRReA", "AAORQROA", "BBNTRRPA", "AAORfQOA", "GJIcIIIA", "AAPRRPBO",
    "QQWZRRRA", "EAMEEEOA", "CAGCCCSM", "QQSUYUSA", "MEEEEEOA", "AAaVVRRA", "AAWZRRRA", "AAORRROA",
    "AAeRReQQ", "AAPRRPBB", "AAWZQQQA", "AAPQOBeA", "IIcIIJGA", "AARRRTNA", "AARRRKEA", "AARRVVKA",
    "AARKEKRA", "AARRRPBO", "AAfCEIfA", "GIIQIIGA", "EEEEEEEA", "MCCBCCMA", "AAIVCAAA",
};

bool glyph_pixel(char c, int x, int y)
{
    /* What is not there is a hollow box. */
    const char *rows = c >= FIRST && c <= LAST ? glyphs[c - FIRST] : "fRRRRRfA";
    int bits = rows[y] >= 'a' ? rows[y] - 'a' + 26 : rows[y] - 'A';
    return bits >> (GLYPH_WIDTH - 1 - x) & 1;
}
