// Compiles winograd_grad_weight.c for AVX2, where images and weights are plain.
#define CPU_LANES 8
#include "device/cpu/winograd_grad_weight.c"
