/* Computes the mean of a vector over all ranks, in C.
 *
 *   sluice reducer --listen 127.0.0.1:7470 &
 *   for rank in 0 1 2; do ./mean_of_ranks 127.0.0.1:7470 $rank 3 & done; wait
 *
 * Each rank prints a line such as "rank 1 of 3: mean of 1000000 elements is 1". */
#include <sluice/sluice.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kCount = 1000000 };

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: %s REDUCERS RANK RANKS\n", argv[0]);
    return 64;
  }
  sluice_options options;
  sluice_options_init(&options);
  options.reducers = argv[1];
  options.rank = (uint32_t)atoi(argv[2]);
  options.ranks = (uint32_t)atoi(argv[3]);
  /* Equal on all ranks and unique to the session. Use 16 random bytes that your launcher passes to all
   * ranks. */
  memcpy(options.session_id, "mean of ranks 01", 16);

  char error[512];
  sluice_session* session = NULL;
  if (sluice_session_create(&options, &session, error, sizeof error) != SLUICE_OK) {
    fprintf(stderr, "rank %u: %s\n", options.rank, error);
    return 1;
  }

  float* const values = malloc(kCount * sizeof *values);
  if (values == NULL) return 1;
  for (int i = 0; i < kCount; ++i) values[i] = (float)options.rank;

  /* In place. Blocks until the result is there. */
  sluice_status status = sluice_allreduce(session, values, values, kCount, SLUICE_F32, SLUICE_AVG);
  if (status != SLUICE_OK) {
    sluice_session_error(session, error, sizeof error);
    fprintf(stderr, "rank %u: %s: %s\n", options.rank, sluice_status_string(status), error);
  } else {
    printf("rank %u of %u: mean of %d elements is %g\n", options.rank, options.ranks, kCount, values[0]);
  }
  /* Waits for at most linger_ms until no other rank needs this one. */
  const sluice_status closed = sluice_session_close(session);
  free(values);
  return status == SLUICE_OK && closed == SLUICE_OK ? 0 : 1;
}
