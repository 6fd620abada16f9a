// The GPUs for which a run can be planned without having one, as facts from their makers' data
// sheets. The devices cuda and null take names and memory from here, the estimate of a step's time
// (plan/estimate.c) takes the rates.
#ifndef TRIREME_DEVICE_GPUS_H
#define TRIREME_DEVICE_GPUS_H

// X(name, driver, features, gigabytes, f32, half, memory, link, host, socket, sharing)
// - name: as --device cuda:NAME and the profiles of sites (sites/*.yaml) call it;
// - driver: the word, or words, by which the driver's name for the GPU is recognised;
// - features: HALF, all that the device cuda can use; NO_BF16, a GPU from before BF16; PLAIN, an
//   AMD GPU, for which we have no library and no matrix cores yet;
// - gigabytes: memory, in units of 10^9 bytes; drivers report slightly more and keep some of it;
// - f32, half: 10^12 operations per second in F32, and of dense products in BF16 or F16 with sums
//   in F32;
// - memory, link, host: 10^9 bytes per second of the GPU's memory, to other GPUs of its host in one
//   direction (NVLink, Infinity Fabric, else PCIe), and from or to the host's memory (PCIe with 16
//   lanes of generation 3, 4 or 5, NVLink-C2C, Infinity Fabric of an MI250X);
// - socket, sharing: 10^9 bytes per second of the memory of a socket, as hosts with such GPUs
//   usually have it (6 or 8 channels of DDR4, 8 or 12 of DDR5, LPDDR5X of a Grace, 2 of DDR5 in a
//   PC), and how many of the GPUs share the socket.
// Sources: NVIDIA's data sheets (rates without sparsity, half of those with it), its papers on the
// architectures GA102, AD102 and GB202 for the RTX, AMD's data sheets, and the Frontier User Guide
// for what connects the halves of different MI250X (50 to 100; those of one have 200).
// GPUs with one driver's name differ in memory and follow each other from the smallest. h100-94 is
// the H100 NVL. An MI250X is two devices, and the row is one of them. The A100 and the H100 with 64
// GB are each made for one site and have no data sheet: their rates are those of the usual models
// (less than Leonardo's A100 has, by its peak in the Top500), and the memory of the H100 is
// derived, as four of the five stacks of the H100 with HBM2e (2039 * 4 / 5).
#define TRI_GPUS(X)                                                                                \
    X("gb200", "GB200", HALF, 186, 80, 2500, 8000, 900, 450, 512, 2)                               \
    X("b200", "B200", HALF, 180, 75, 2250, 8000, 900, 64, 307, 4)                                  \
    X("gh200", "GH200", HALF, 96, 67, 989, 4000, 450, 450, 512, 1)                                 \
    X("h200", "H200", HALF, 141, 67, 989, 4800, 450, 64, 307, 4)                                   \
    X("h100-64", "H100", HALF, 64, 67, 989, 1631, 450, 64, 307, 2)                                 \
    X("h100-80", "H100", HALF, 80, 67, 989, 3350, 450, 64, 307, 4)                                 \
    X("h100-94", "H100", HALF, 94, 60, 835, 3900, 300, 64, 307, 4)                                 \
    X("a100-40", "A100", HALF, 40, 19.5, 312, 1555, 300, 32, 205, 4)                               \
    X("a100-64", "A100", HALF, 64, 19.5, 312, 1640, 300, 32, 205, 4)                               \
    X("a100-80", "A100", HALF, 80, 19.5, 312, 2039, 300, 32, 205, 4)                               \
    X("a40", "A40", HALF, 48, 37.4, 149.7, 696, 56, 32, 205, 4)                                    \
    X("a30", "A30", HALF, 24, 10.3, 165, 933, 100, 32, 205, 4)                                     \
    X("a10", "A10", HALF, 24, 31.2, 125, 600, 32, 32, 205, 4)                                      \
    X("l40s", "L40S", HALF, 48, 91.6, 362, 864, 32, 32, 307, 4)                                    \
    X("l4", "L4", HALF, 24, 30.3, 121, 300, 32, 32, 307, 4)                                        \
    X("rtx-5090", "RTX 5090", HALF, 32, 104.8, 209.5, 1792, 64, 64, 90, 1)                         \
    X("rtx-4090", "RTX 4090", HALF, 24, 82.6, 165.2, 1008, 32, 32, 90, 1)                          \
    X("rtx-3090", "RTX 3090", HALF, 24, 35.6, 71, 936, 32, 32, 51, 1)                              \
    X("v100-16", "V100", NO_BF16, 16, 15.7, 125, 900, 150, 16, 128, 2)                             \
    X("v100-32", "V100", NO_BF16, 32, 15.7, 125, 900, 150, 16, 128, 2)                             \
    X("t4", "T4", NO_BF16, 16, 8.1, 65, 320, 16, 16, 128, 2)                                       \
    X("mi250x", "MI250X", PLAIN, 64, 23.95, 191.5, 1638, 100, 36, 205, 8)                          \
    X("mi300x", "MI300X", PLAIN, 192, 163.4, 1307.4, 5300, 448, 64, 461, 4)

#endif
