/* view.h - sizes, strides and an offset against a flat base: how a view is read and written without a gather.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_VIEW_H
#define TPUTORCH_VIEW_H

#include "type.h"

/* A strided view as one box: the base, padded to `padded` elements and seen in the shape extent[n], is sliced from start[]
 * with size[]; the box's dims are the view's dims of more than one element in order of falling stride: box dim i is view
 * dim from[i] (the last box dim may be extra, then from[i] is -1). */
typedef struct view_box {
    int n;
    int64_t padded, extent[TYPE_MAX_RANK + 1], start[TYPE_MAX_RANK + 1], size[TYPE_MAX_RANK + 1];
    int from[TYPE_MAX_RANK + 1];
} view_box;

/* False: no box expresses it (overlapping or ragged strides), a gather must. total: elements of the base. */
bool view_box_of(int64_t total, int rank, const int64_t *size, const int64_t *stride, int64_t offset, view_box *out_box);
bool view_is_contiguous(int rank, const int64_t *size, const int64_t *stride);
/* One past the last element that the view touches, counted from the start of the storage; 0 when it is empty. */
int64_t view_end(int rank, const int64_t *size, const int64_t *stride, int64_t offset);
void view_contiguous(int rank, const int64_t *size, int64_t *out_stride);

#endif
