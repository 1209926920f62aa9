/* view.c - sizes, strides and an offset against a flat base.
 * SPDX-License-Identifier: Apache-2.0 */
#include "view.h"

bool view_is_contiguous(int rank, const int64_t *size, const int64_t *stride)
{
    int64_t want = 1;
    for (int d = rank - 1; d >= 0; d--) {
        if (size[d] == 0) return true;
        if (size[d] != 1 && stride[d] != want) return false;
        want *= size[d];
    }
    return true;
}

void view_contiguous(int rank, const int64_t *size, int64_t *out_stride)
{
    int64_t step = 1;
    for (int d = rank - 1; d >= 0; d--) {
        out_stride[d] = step;
        step *= size[d] > 1 ? size[d] : 1;
    }
}

int64_t view_end(int rank, const int64_t *size, const int64_t *stride, int64_t offset)
{
    int64_t last = offset;
    for (int d = 0; d < rank; d++) {
        if (size[d] == 0) return 0;
        last += (size[d] - 1) * stride[d];
    }
    return last + 1;
}

bool view_box_of(int64_t total, int rank, const int64_t *size, const int64_t *stride, int64_t offset, view_box *b)
{
    int n = 0;
    for (int d = 0; d < rank; d++) {
        if (size[d] == 1) continue;
        if (stride[d] == 0) continue;                   /* expanded: broadcast after the slice */
        int at = n++;
        while (at > 0 && stride[b->from[at - 1]] < stride[d]) {
            b->from[at] = b->from[at - 1];
            at--;
        }
        b->from[at] = d;
    }
    int64_t rest = offset, outer = 0;
    for (int i = 0; i < n; i++) {
        int64_t s = stride[b->from[i]];
        b->size[i] = size[b->from[i]];
        b->start[i] = rest / s;
        rest %= s;
        if (i == 0) {
            b->extent[0] = (total + s - 1) / s;
        } else {
            if (outer % s) return false;
            b->extent[i] = outer / s;
        }
        if (b->start[i] + b->size[i] > b->extent[i]) return false;
        outer = s;
    }
    if (n == 0) outer = total ? total : 1;
    if (outer > 1 || n == 0) {                          /* one element of what lies inside the innermost stride */
        b->from[n] = -1;
        b->extent[n] = outer;
        b->start[n] = rest;
        b->size[n] = 1;
        n++;
    }
    b->n = n;
    b->padded = 1;
    for (int i = 0; i < n; i++) b->padded *= b->extent[i];
    return rest < outer || n == 0;
}
