/* families.h - the list of op families: FAMILY(x) stands for `const op_row ops_x[]` in src/ops/x.c.  No include guard:
 * ops.c includes it twice.
 * SPDX-License-Identifier: Apache-2.0 */
FAMILY(view)
FAMILY(matmul)
FAMILY(softmax)
FAMILY(norm)
FAMILY(batchnorm)
FAMILY(index)
FAMILY(advanced)
FAMILY(shape)
FAMILY(foreach)
FAMILY(optim)
FAMILY(random)
FAMILY(loss)
FAMILY(conv)
FAMILY(create)
FAMILY(reduce)
