#include "device/ref/node.h"

#include <math.h>
#include <string.h>

#include "device/ref/f32.h"

#include "device/ref/loss_body.h"

#include "device/ref/vocab_parallel_loss_body.h"

#include "device/ref/f64.h"

#include "device/ref/loss_body.h"

#include "device/ref/vocab_parallel_loss_body.h"

REF_KERNEL(log_softmax)
REF_KERNEL(log_softmax_grad)
REF_KERNEL(nll_loss)
REF_KERNEL(nll_loss_grad)
REF_KERNEL(cross_entropy)
REF_KERNEL(cross_entropy_grad)
REF_KERNEL(mse_loss)
REF_KERNEL(mse_loss_grad)
REF_KERNEL(relative_l2_loss)
REF_KERNEL(relative_l2_loss_grad)
REF_KERNEL(accuracy)
REF_KERNEL(row_max)
REF_KERNEL(vocab_parallel_softmax)
REF_KERNEL(vocab_parallel_cross_entropy)
REF_KERNEL(vocab_parallel_cross_entropy_grad)
REF_KERNEL(vocab_parallel_argmax)
REF_KERNEL(vocab_parallel_accuracy)
