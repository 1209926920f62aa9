/* test_view.c - views as boxes [A1].
 * SPDX-License-Identifier: Apache-2.0 */
#include "view.h"

#include "test.h"

static bool box(int64_t total, int rank, const int64_t *size, const int64_t *stride, int64_t offset, view_box *b)
{
    return view_box_of(total, rank, size, stride, offset, b);
}

TEST(a_slice_of_rows_is_a_box)
{
    view_box b;
    CHECK(box(24, 2, (int64_t[]){2, 4}, (int64_t[]){4, 1}, 8, &b));
    CHECK(b.n == 2 && b.extent[0] == 6 && b.extent[1] == 4 && b.start[0] == 2 && b.size[0] == 2 && b.size[1] == 4);
}

TEST(a_step_is_a_box_with_one_more_dim)
{
    view_box b;
    CHECK(box(12, 1, (int64_t[]){6}, (int64_t[]){2}, 1, &b));
    CHECK(b.n == 2 && b.extent[0] == 6 && b.extent[1] == 2 && b.start[1] == 1 && b.size[1] == 1 && b.from[1] == -1);
}

TEST(a_transpose_keeps_its_dims_in_falling_stride)
{
    view_box b;
    CHECK(box(6, 2, (int64_t[]){3, 2}, (int64_t[]){1, 3}, 0, &b));
    CHECK(b.n == 2 && b.from[0] == 1 && b.from[1] == 0 && b.extent[0] == 2 && b.extent[1] == 3);
}

TEST(a_diagonal_is_a_box_over_padded_rows)
{
    view_box b;
    CHECK(box(9, 1, (int64_t[]){3}, (int64_t[]){4}, 0, &b));
    CHECK(b.padded == 12 && b.extent[0] == 3 && b.extent[1] == 4 && b.size[1] == 1);
}

TEST(overlapping_windows_are_no_box)
{
    view_box b;
    CHECK(!box(10, 2, (int64_t[]){8, 3}, (int64_t[]){1, 1}, 0, &b));
}

TEST(an_expanded_dim_is_left_to_the_broadcast)
{
    view_box b;
    CHECK(box(4, 2, (int64_t[]){5, 4}, (int64_t[]){0, 1}, 0, &b));
    CHECK(b.n == 1 && b.from[0] == 1);
}

TEST(a_single_element_is_a_box)
{
    view_box b;
    CHECK(box(16, 0, NULL, NULL, 7, &b));
    CHECK(b.n == 1 && b.extent[0] == 16 && b.start[0] == 7 && b.size[0] == 1);
}

TEST(the_end_of_a_view_counts_from_the_storage)
{
    CHECK(view_end(2, (int64_t[]){2, 3}, (int64_t[]){10, 2}, 5) == 20);
    CHECK(view_end(1, (int64_t[]){0}, (int64_t[]){1}, 5) == 0);
}
