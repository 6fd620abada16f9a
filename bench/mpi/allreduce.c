// Measures the all-reduce of Open MPI itself, so that Trireme's can be compared with it. It
// measures as `trireme bench comm` does: in each repetition the slowest rank counts, and the result
// is the median over the repetitions. The operation sums F32 values in place. The arguments are
// sizes in bytes; for each size rank 0 prints one line, a JSON object with the time of one
// operation.
//
//   mpicc -O2 bench/mpi/allreduce.c -o allreduce && mpirun -n 2 ./allreduce 8 1048576
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_REPETITIONS = 1000, SMALL_BYTES = 64 << 10, SMALL_INNER = 200, BUDGET_BYTES = 1 << 30 };

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double time_size(size_t bytes) {
    static double times[MAX_REPETITIONS];
    int inner = bytes <= SMALL_BYTES ? SMALL_INNER : 1, count = (int)(bytes / sizeof(float));
    int repetitions = (int)(BUDGET_BYTES / bytes > 50 ? 50 : BUDGET_BYTES / bytes);
    if (repetitions < 9) repetitions = 9;
    float *x = calloc(bytes, 1);
    for (int warm = 0; warm < 2; warm++)
        MPI_Allreduce(MPI_IN_PLACE, x, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < repetitions; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = MPI_Wtime();
        for (int k = 0; k < inner; k++)
            MPI_Allreduce(MPI_IN_PLACE, x, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        times[i] = (MPI_Wtime() - begin) / inner;
    }
    free(x);
    MPI_Allreduce(MPI_IN_PLACE, times, repetitions, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    qsort(times, (size_t)repetitions, sizeof *times, compare);
    return times[repetitions / 2];
}

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 1; i < argc; i++) {
        size_t bytes = strtoul(argv[i], NULL, 10);
        double seconds = time_size(bytes);
        if (rank == 0)
            printf("{\"op\":\"all_reduce\",\"backend\":\"open-mpi\",\"ranks\":%d,\"bytes\":%zu,"
                   "\"time_us\":%.3f,\"algbw_gb_s\":%.4f}\n",
                   size, bytes, seconds * 1e6, (double)bytes / seconds / 1e9);
        fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
