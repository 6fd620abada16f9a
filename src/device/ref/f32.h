// No include guard: the bodies that follow are compiled for F32.
#undef REAL
#undef TYPED
#define REAL float
#define TYPED(name) name##_f32
