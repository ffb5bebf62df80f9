/* mean REDUCERS RANK RANKS: allreduces {rank, 1, 2} with avg and prints the result. */
#include <sluice/sluice.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  sluice_options o;
  sluice_options_init(&o);
  o.reducers = argv[1];
  o.rank = (uint32_t)atoi(argv[2]);
  o.ranks = (uint32_t)atoi(argv[3]);
  memcpy(o.session_id, "a user's session", 16);
  char error[256];
  sluice_session* s;
  if (sluice_session_create(&o, &s, error, sizeof error) != SLUICE_OK) {
    fprintf(stderr, "%s\n", error);
    return 1;
  }
  float data[3] = {(float)o.rank, 1, 2};
  const sluice_status status = sluice_allreduce(s, data, data, 3, SLUICE_F32, SLUICE_AVG);
  printf("%s %g %g %g\n", sluice_status_string(status), data[0], data[1], data[2]);
  return sluice_session_close(s) == SLUICE_OK ? 0 : 1;
}
