// What the machine can do: log-likelihood of N cart-pole records of T steps, for M parameter particles each.
// One thread per share of the records, particles innermost so that they fill the vector units, every term that
// only depends on the record lifted out. Prints the best nanoseconds per (record, particle, step) of several runs.
// Build: cc -O3 -march=native -ffast-math -fopenmp history_likelihood.c -o history_likelihood -lm
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { RUNS = 12, WIDTH = 5 };  // a step: position, angle, velocity, angular velocity, force

static double next_uniform(uint64_t *state) {  // xorshift64*
  *state ^= *state >> 12, *state ^= *state << 25, *state ^= *state >> 27;
  return (double)((*state * 2685821657736338717ULL) >> 11) * 0x1p-53;
}

static void one_record(const double *record, int steps, int particles, const double *length, const double *pole,
                       const double *cart, double *total) {
  const double step = 0.05, gravity = 9.81, spring = 0.01;
  const double cart_scale = -0.5 / (0.1 * 0.1 * step + 1e-8), pole_scale = -0.5 / 1e-8;
  for (int m = 0; m < particles; m++) total[m] = 0.0;
  for (int t = 0; t < steps; t++) {
    const double *now = record + (size_t)t * WIDTH, *then = now + WIDTH;
    const double s = sin(now[1]), c = cos(now[1]), spin = now[3] * now[3];
    const double track = spring * (now[0] + now[2]), hinge = spring * (now[1] + now[3]) * c;
    const double push = now[4] - track, pull = -(now[4] + track) * c;
    const double swing = spin * s, fall = gravity * s * c, turn = spin * s * c, weight = gravity * s, brake = hinge * c;
    const double cart_change = then[2] - now[2], pole_change = then[3] - now[3], square = s * s;
#pragma omp simd
    for (int m = 0; m < particles; m++) {
      const double scale = step / (cart[m] + pole[m] * square), per_length = 1.0 / length[m];
      const double cart_error = cart_change - scale * (push - hinge * per_length + pole[m] * (length[m] * swing + fall));
      const double pole_error =
          pole_change - scale * per_length *
                            (pull - pole[m] * length[m] * turn - (cart[m] + pole[m]) * weight - brake * per_length);
      total[m] += cart_scale * cart_error * cart_error + pole_scale * pole_error * pole_error;
    }
  }
}

int main(int argc, char **argv) {
  if (argc != 4) return fprintf(stderr, "usage: history_likelihood N M T\n"), 2;
  const int records = atoi(argv[1]), particles = atoi(argv[2]), steps = atoi(argv[3]);
  const size_t count = (size_t)records * particles, row = (size_t)(steps + 1) * WIDTH;
  double *theta[3], *total = malloc(count * sizeof *total), *seen = malloc(records * row * sizeof *seen);
  uint64_t state = 88172645463325252ULL;
  for (int k = 0; k < 3; k++) {
    theta[k] = malloc(count * sizeof **theta);
    for (size_t i = 0; i < count; i++) theta[k][i] = 0.9 + 0.2 * next_uniform(&state);
  }
  for (size_t i = 0; i < records * row; i++) seen[i] = next_uniform(&state) - 0.5;
  double best = INFINITY;
  for (int run = 0; run < RUNS; run++) {
    const double start = omp_get_wtime();
#pragma omp parallel for schedule(static)
    for (int n = 0; n < records; n++) {
      const size_t at = (size_t)n * particles;
      one_record(seen + n * row, steps, particles, theta[0] + at, theta[1] + at, theta[2] + at, total + at);
    }
    best = fmin(best, omp_get_wtime() - start);
  }
  double checksum = 0.0;
  for (size_t i = 0; i < count; i++) checksum += total[i];
  fprintf(stderr, "checksum %g\n", checksum);  // so that nothing is optimised away
  printf("%.6f\n", best * 1e9 / ((double)count * steps));
  return 0;
}
