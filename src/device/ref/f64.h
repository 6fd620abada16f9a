// No include guard: the bodies that follow are compiled for F64.
#undef REAL
#undef TYPED
#define REAL double
#define TYPED(name) name##_f64
