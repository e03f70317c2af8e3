/* Counts started and completed MPI requests, in a file of two numbers per process, FEDNMF_REQUESTS.PID. The soak test
 * preloads it. */
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t fallback[2];
static uint64_t *count = fallback;

__attribute__((constructor)) static void open_file(void)
{
    const char *prefix = getenv("FEDNMF_REQUESTS");
    char path[4096];
    if (!prefix || snprintf(path, sizeof path, "%s.%d", prefix, (int)getpid()) >= (int)sizeof path)
        return;
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || ftruncate(file, sizeof fallback) != 0)
        return;
    void *at = mmap(NULL, sizeof fallback, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at != MAP_FAILED)
        count = at;
    close(file);
}

#define STARTS(name, parameters, arguments)                \
    int MPI_##name parameters                              \
    {                                                      \
        __atomic_fetch_add(&count[0], 1, __ATOMIC_RELAXED); \
        return PMPI_##name arguments;                      \
    }

STARTS(Isend, (const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request *r), (b, n, t, to, tag, c, r))
STARTS(Irecv, (void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Request *r), (b, n, t, from, tag, c, r))
STARTS(Ibarrier, (MPI_Comm c, MPI_Request *r), (c, r))
STARTS(Ibcast, (void *b, int n, MPI_Datatype t, int root, MPI_Comm c, MPI_Request *r), (b, n, t, root, c, r))
STARTS(Iallreduce, (const void *s, void *b, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c, MPI_Request *r), (s, b, n, t, o, c, r))
STARTS(Ireduce_scatter, (const void *s, void *b, const int *n, MPI_Datatype t, MPI_Op o, MPI_Comm c, MPI_Request *r),
       (s, b, n, t, o, c, r))
STARTS(Iallgatherv,
       (const void *s, int n, MPI_Datatype t, void *b, const int *m, const int *d, MPI_Datatype u, MPI_Comm c, MPI_Request *r),
       (s, n, t, b, m, d, u, c, r))
STARTS(Ialltoallv,
       (const void *s, const int *n, const int *d, MPI_Datatype t, void *b, const int *m, const int *e, MPI_Datatype u, MPI_Comm c,
        MPI_Request *r),
       (s, n, d, t, b, m, e, u, c, r))

int MPI_Wait(MPI_Request *r, MPI_Status *s)
{
    int was = *r != MPI_REQUEST_NULL, status = PMPI_Wait(r, s);
    __atomic_fetch_add(&count[1], was && *r == MPI_REQUEST_NULL, __ATOMIC_RELAXED);
    return status;
}

int MPI_Test(MPI_Request *r, int *done, MPI_Status *s)
{
    int was = *r != MPI_REQUEST_NULL, status = PMPI_Test(r, done, s);
    __atomic_fetch_add(&count[1], was && *r == MPI_REQUEST_NULL, __ATOMIC_RELAXED);
    return status;
}
