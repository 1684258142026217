/* The fuzzer of videos, with changes that know the boxes of MP4 and the elements of Matroska:
 * sizes, offsets and checksums hold, so that what was changed is reached. What is done with an
 * input is in fuzz_video.c. */
#include "box_changes.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t cap);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t cap, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size,
                                 uint8_t *out, size_t cap, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t cap, unsigned seed)
{
    return boxes_mutate(data, size, cap, seed, LLVMFuzzerMutate);
}

size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size,
                                 uint8_t *out, size_t cap, unsigned seed)
{
    return boxes_cross(a, a_size, b, b_size, out, cap, seed);
}
