// Reference loops for the kernels of fednmf, compiled by bench/reference.rs for each precision and number of components.
// T is the type, K the number of components. Rows of the factors U and V are padded with zeros to whole vectors and
// aligned to cache lines; LD is their length. The vectors are those of GCC and Clang, on any processor.

#include <stdint.h>
#include <stdlib.h>

typedef T vec __attribute__((vector_size(64)));
enum { LANES = 64 / sizeof(T), N = (K + LANES - 1) / LANES, LD = N * LANES, AHEAD = 16 };
#define TINY ((T)1e-12)

typedef struct {
    int64_t rows;
    const int64_t *starts;
    const int32_t *columns;
    const T *values;
} csr;

static inline vec all(T x) { return x - (vec){0}; }

static inline T sum(vec x) {
    T total = 0;
    for (int l = 0; l < LANES; l++) total += x[l];
    return total;
}

// A place past the end of the matrix is only prefetched: the array of columns is longer by AHEAD.
static inline void prefetch(const csr *x, const vec *factor, int64_t p) {
    const vec *row = factor + (int64_t)x->columns[p + AHEAD] * N;
    for (int n = 0; n < N; n++) __builtin_prefetch(row + n);
}

int64_t padded(void) { return LD; }

void product(const csr *x, const vec *v, vec *u) {
    for (int64_t i = 0; i < x->rows; i++) {
        vec s[N] = {{0}};
        for (int64_t p = x->starts[i]; p < x->starts[i + 1]; p++) {
            prefetch(x, v, p);
            const vec *row = v + (int64_t)x->columns[p] * N;
            for (int n = 0; n < N; n++) s[n] += x->values[p] * row[n];
        }
        for (int n = 0; n < N; n++) u[i * N + n] = s[n];
    }
}

// v is zero before.
void transposed_product(const csr *x, const vec *u, vec *v) {
    for (int64_t i = 0; i < x->rows; i++) {
        vec own[N];
        for (int n = 0; n < N; n++) own[n] = u[i * N + n];
        for (int64_t p = x->starts[i]; p < x->starts[i + 1]; p++) {
            prefetch(x, v, p);
            vec *row = v + (int64_t)x->columns[p] * N;
            for (int n = 0; n < N; n++) row[n] += x->values[p] * own[n];
        }
    }
}

// <X, U V'>, in double for every type.
double cross(const csr *x, const vec *u, const vec *v) {
    double total = 0;
    for (int64_t i = 0; i < x->rows; i++) {
        double s[LD] = {0};
        for (int64_t p = x->starts[i]; p < x->starts[i + 1]; p++) {
            prefetch(x, v, p);
            const T *row = (const T *)(v + (int64_t)x->columns[p] * N);
            for (int l = 0; l < LD; l++) s[l] += (double)x->values[p] * row[l];
        }
        for (int l = 0; l < LD; l++) total += s[l] * ((const T *)(u + i * N))[l];
    }
    return total;
}

// A multiplicative update of U for the Kullback-Leibler divergence; sums are those of V's columns.
void kl_multiply(const csr *x, const vec *v, const T *sums, vec *u) {
    for (int64_t i = 0; i < x->rows; i++) {
        vec own[N], ratios[N] = {{0}};
        for (int n = 0; n < N; n++) own[n] = u[i * N + n];
        for (int64_t p = x->starts[i]; p < x->starts[i + 1]; p++) {
            prefetch(x, v, p);
            const vec *row = v + (int64_t)x->columns[p] * N;
            vec fit = {0};
            for (int n = 0; n < N; n++) fit += own[n] * row[n];
            T ratio = x->values[p] / sum(fit);
            for (int n = 0; n < N; n++) ratios[n] += ratio * row[n];
        }
        for (int l = 0; l < K; l++) ((T *)(u + i * N))[l] *= ((T *)ratios)[l] / sums[l];
    }
}

// A Newton step for each coordinate of U, for the Kullback-Leibler divergence.
void kl_descend(const csr *x, const vec *v, const T *sums, vec *u, T *work) {
    for (int64_t i = 0; i < x->rows; i++) {
        int64_t start = x->starts[i], count = x->starts[i + 1] - start, length = (count + LANES - 1) / LANES * LANES;
        T *own = (T *)(u + i * N), *fit = work, *m = work + length, *columns = work + 2 * length;
        for (int64_t p = 0; p < length; p++) m[p] = p < count ? x->values[start + p] : 0, fit[p] = 1;
        for (int64_t p = 0; p < count; p++) {
            prefetch(x, v, start + p);
            const T *row = (const T *)(v + (int64_t)x->columns[start + p] * N);
            T f = 0;
            for (int l = 0; l < K; l++) columns[l * length + p] = row[l], f += own[l] * row[l];
            fit[p] = f > TINY * m[p] ? f : TINY * m[p];
        }
        for (int l = 0; l < K; l++) {
            T *column = columns + l * length;
            for (int64_t p = count; p < length; p++) column[p] = 0;
            vec slopes = {0}, curvatures = {0};
            for (int64_t p = 0; p < length; p += LANES) {
                vec ratio = *(vec *)(column + p) / *(vec *)(fit + p), term = *(vec *)(m + p) * ratio;
                slopes += term;
                curvatures += term * ratio;
            }
            T slope = sums[l] - sum(slopes), curvature = sum(curvatures);
            T next = curvature > 0 ? own[l] - slope / curvature : 0;
            if (next < 0) next = 0;
            T shift = next - own[l];
            own[l] = next;
            for (int64_t p = 0; p < length; p++) {
                T f = fit[p] + shift * column[p], least = TINY * m[p];
                fit[p] = f > least ? f : least;
            }
        }
    }
}
