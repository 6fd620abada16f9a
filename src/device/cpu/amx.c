// Detects AMX, asks Linux for permission to use it, and configures its tiles.
#include "device/cpu/amx.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    AMX_LEAF = 7,         // leaf of CPUID that tells of AMX
    AMX_BF16 = 1 << 22,   // bit of EDX: AMX multiplies BF16
    AMX_TILE = 1 << 24,   // bit of EDX: there are AMX tiles
    AMX_REQUEST = 0x1023, // arch_prctl's ARCH_REQ_XCOMP_PERM
    AMX_STATE = 18,       // the CPU's state component XFEATURE_XTILE_DATA: the tiles' contents
    AMX_TILES = 8,
};

bool cpu_amx_is_allowed(void) {
    unsigned a, b, c, d, wanted = AMX_BF16 | AMX_TILE;
    if (!__get_cpuid_count(AMX_LEAF, 0, &a, &b, &c, &d) || (d & wanted) != wanted) return false;
    // Without this call the first instruction that uses a tile would fault: Linux has to save 8 KB
    // more for a thread that uses tiles. Linux before 5.16 does not know the call, and refuses it.
    return syscall(SYS_arch_prctl, AMX_REQUEST, AMX_STATE) == 0;
}

// The operand of LDTILECFG (Intel 64 Architectures Software Developer's Manual, volume 1, 18.2).
typedef struct amx_shape {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} amx_shape;

CPU_AMX void cpu_amx_begin(void) {
    amx_shape shape = {.palette = 1};
    for (int i = 0; i < AMX_TILES; i++) {
        shape.row_bytes[i] = 64;
        shape.rows[i] = 16;
    }
    __asm__ volatile("ldtilecfg %0" ::"m"(shape));
}

CPU_AMX void cpu_amx_end(void) { _tile_release(); }
