// What the machine can do: the extended Kalman filter of N position-only pendulum records of T steps, for M parameter
// particles each. One thread per share of the records, particles innermost so that they fill the vector units; sines
// and cosines in loops of their own, since the two of one number become a call for one number at a time.
// Reads records (observations, then designs), then masses and lengths as doubles from standard input; writes the
// log-densities to standard output, and the best nanoseconds per (record, particle, step) of several runs to standard
// error. Build: cc -O3 -march=native -ffast-math -fopenmp history_filter.c -o history_filter -lm
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { RUNS = 12, BLOCK = 256 };  // particles of a block, whose filters stay in the nearest cache

static const double step = 0.05, gravity = 9.81, friction = 0.1, floor_noise = 1e-8, diffusion = 0.1, sensor = 0.001;

static void some_particles(const double *seen, const double *torque, int steps, int particles,
                           const double *restrict mass, const double *restrict length, double *restrict total) {
  const double q0 = floor_noise, q1 = diffusion * diffusion * step + floor_noise, r = sensor * sensor;
  double angle[BLOCK], velocity[BLOCK], p00[BLOCK], p10[BLOCK], p11[BLOCK];  // means, covariance
  double swing[BLOCK], drive[BLOCK], sine[BLOCK], cosine[BLOCK];
  for (int m = 0; m < particles; m++) {  // the start is known: what is seen of it tells nothing
    angle[m] = velocity[m] = p00[m] = p10[m] = p11[m] = 0.0;
    swing[m] = 1.5 * gravity / length[m] * step, drive[m] = 3.0 / (mass[m] * length[m] * length[m]) * step;
    total[m] = steps * log(2.0 * M_PI);
  }
  for (int t = 0; t < steps; t++) {
    const double u = torque[t], y = seen[t + 1];
    for (int m = 0; m < particles; m++) sine[m] = sin(angle[m]);
    for (int m = 0; m < particles; m++) cosine[m] = cos(angle[m]);
#pragma omp simd
    for (int m = 0; m < particles; m++) {
      const double f10 = -swing[m] * cosine[m], f11 = 1.0 - friction * drive[m];  // slopes of the next velocity
      const double a = angle[m] + step * velocity[m];
      const double v = f11 * velocity[m] - swing[m] * sine[m] + drive[m] * u;
      const double m00 = p00[m] + step * p10[m], m01 = p10[m] + step * p11[m];  // F P, row by row
      const double m10 = f10 * p00[m] + f11 * p10[m], m11 = f10 * p10[m] + f11 * p11[m];
      const double c00 = m00 + step * m01 + q0, c10 = m10 + step * m11, c11 = f10 * m10 + f11 * m11 + q1;
      const double variance = c00 + r, precision = 1.0 / variance, residual = y - a;
      const double g0 = c00 * precision, g1 = c10 * precision;
      angle[m] = a + g0 * residual, velocity[m] = v + g1 * residual;
      p00[m] = c00 - g0 * c00, p10[m] = c10 - g1 * c00, p11[m] = c11 - g1 * c10;
      total[m] += residual * residual * precision + log(variance);
    }
  }
  for (int m = 0; m < particles; m++) total[m] *= -0.5;
}

static double *numbers(size_t count) {
  double *found = malloc(count * sizeof *found);
  if (!found || fread(found, sizeof *found, count, stdin) != count) exit((fprintf(stderr, "too few numbers\n"), 1));
  return found;
}

int main(int argc, char **argv) {
  if (argc != 4) return fprintf(stderr, "usage: history_filter N M T <numbers >log-densities\n"), 2;
  const int records = atoi(argv[1]), particles = atoi(argv[2]), steps = atoi(argv[3]);
  const size_t count = (size_t)records * particles;
  const double *seen = numbers((size_t)records * (steps + 1)), *torque = numbers((size_t)records * steps);
  const double *mass = numbers(count), *length = numbers(count);
  double *total = malloc(count * sizeof *total), best = INFINITY;
  for (int run = 0; run < RUNS; run++) {
    const double start = omp_get_wtime();
#pragma omp parallel for schedule(static) collapse(2)
    for (int n = 0; n < records; n++)
      for (int m = 0; m < particles; m += BLOCK) {
        const size_t at = (size_t)n * particles + m;
        some_particles(seen + (size_t)n * (steps + 1), torque + (size_t)n * steps, steps,
                       particles - m < BLOCK ? particles - m : BLOCK, mass + at, length + at, total + at);
      }
    best = fmin(best, omp_get_wtime() - start);
  }
  fwrite(total, sizeof *total, count, stdout);
  fprintf(stderr, "%.6f\n", best * 1e9 / ((double)count * steps));
  return 0;
}
