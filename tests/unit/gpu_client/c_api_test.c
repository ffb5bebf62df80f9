/* The public header in C, and the errors of invalid arguments. Needs no reducer. */
#include <sluice/sluice.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

#define CHECK(condition)                                      \
  do {                                                        \
    if (!(condition)) {                                       \
      fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
      ++failures;                                             \
    }                                                         \
  } while (0)

static sluice_options valid_options(void) {
  sluice_options o;
  sluice_options_init(&o);
  o.reducers = "127.0.0.1:1";
  o.session_id[3] = 7;
  o.rank = 0;
  o.ranks = 1;
  o.connect_timeout_ms = 1;
  return o;
}

static sluice_status create(const sluice_options* o, char* text) {
  sluice_session* session = (sluice_session*)text; /* must be overwritten */
  const sluice_status status = sluice_session_create(o, &session, text, 256);
  CHECK(session == NULL);
  return status;
}

/* Checks that an invalid option is refused without network access, with its name in the error, and by
 * sluice_options_check with the same words. */
#define REFUSES(change, expected)                                                  \
  do {                                                                             \
    char text[256];                                                                \
    char checked[256];                                                             \
    sluice_options o = valid_options();                                            \
    change;                                                                        \
    CHECK(create(&o, text) == SLUICE_INVALID_ARGUMENT);                            \
    CHECK(sluice_options_check(&o, checked, 256) == SLUICE_INVALID_ARGUMENT);      \
    CHECK(strcmp(text, checked) == 0);                                             \
    if (strstr(text, expected) == NULL) {                                          \
      fprintf(stderr, "line %d: \"%s\" lacks \"%s\"\n", __LINE__, text, expected); \
      ++failures;                                                                  \
    }                                                                              \
  } while (0)

static void options(void) {
  char text[256];
  char tiny[4];
  sluice_session* session = NULL;
  sluice_options o = valid_options();
  CHECK(o.struct_size == sizeof o);
  CHECK(o.window_bytes == 2u << 20 && o.slot_bytes == 0);
  CHECK(o.progress_threads == 1 && o.payload_crc == 1 && o.op_timeout_ms == 0);
  CHECK(o.join_timeout_ms == 60000 && o.linger_ms == 5000);
  sluice_options_init(NULL);

  CHECK(sluice_session_create(NULL, &session, text, sizeof text) == SLUICE_INVALID_ARGUMENT);
  CHECK(sluice_session_create(&o, NULL, text, sizeof text) == SLUICE_INVALID_ARGUMENT);
  CHECK(sluice_session_create(NULL, NULL, NULL, 0) == SLUICE_INVALID_ARGUMENT);
  REFUSES(o.struct_size = 0, "sluice_options_init");
  setenv("SLUICE_HOSTS", "off", 1); /* otherwise the session is one of this host and needs no reducers */
  REFUSES(o.reducers = NULL, "reducers");
  unsetenv("SLUICE_HOSTS");
  REFUSES(o.reducers = "", "empty");
  REFUSES(o.reducers = "a,b:99999", "item 2");
  REFUSES(memset(o.session_id, 0, 16), "session_id");
  REFUSES(o.ranks = 0, "ranks 0");
  REFUSES(o.ranks = 100000, "ranks 100000");
  REFUSES(o.rank = 1, "rank 1");
  REFUSES(o.lanes = 65, "lanes");
  REFUSES(o.slot_bytes = 100, "slot_bytes 100");
  REFUSES(o.slot_bytes = 5000, "multiple of 64");
  REFUSES(o.window_bytes = 1024, "window_bytes");
  REFUSES(o.progress_threads = 2, "progress_threads");
  REFUSES(o.payload_crc = 2, "payload_crc");
  REFUSES(o.connect_timeout_ms = 0, "connect_timeout_ms");
  REFUSES(o.join_timeout_ms = 0, "join_timeout_ms");
  REFUSES(o.key_file = "a"; o.token_file = "b", "both");

  o.reducers = "b:x";
  CHECK(sluice_session_create(&o, &session, tiny, sizeof tiny) == SLUICE_INVALID_ARGUMENT);
  CHECK(strlen(tiny) == 3); /* truncated and terminated */

  o = valid_options();
  o.key_file = "/nonexistent/sluice.key";
  CHECK(create(&o, text) == SLUICE_SYSTEM);
  CHECK(strstr(text, "/nonexistent/sluice.key") != NULL);
  CHECK(sluice_options_check(&o, text, sizeof text) == SLUICE_SYSTEM);
  CHECK(strstr(text, "/nonexistent/sluice.key") != NULL);
  CHECK(sluice_options_check(NULL, NULL, 0) == SLUICE_INVALID_ARGUMENT);

  /* No process listens on port 1. */
  o = valid_options();
  CHECK(sluice_options_check(&o, text, sizeof text) == SLUICE_OK && text[0] == '\0');
  CHECK(create(&o, text) == SLUICE_TIMEOUT);
  CHECK(strstr(text, "reducer 127.0.0.1:1") != NULL && strstr(text, "refused") != NULL);
}

/* The struct of another header version has another size. */
static void other_sizes(void) {
  char text[256];
  struct {
    sluice_options options;
    char unknown[64];
  } o;
  const size_t longer = sizeof o;
  const size_t shorter = offsetof(sluice_options, linger_ms);
  size_t i;

  memset(&o, 0x5a, sizeof o);
  sluice_options_init_sized(&o.options, shorter);
  CHECK(o.options.struct_size == shorter);
  CHECK(o.options.join_timeout_ms == 60000 && o.options.reducers == NULL);
  for (i = shorter; i < sizeof o; ++i) CHECK(((const unsigned char*)&o)[i] == 0x5a);
  CHECK(create(&o.options, text) == SLUICE_INVALID_ARGUMENT); /* smaller than that of the first release */

  memset(&o, 0x5a, sizeof o);
  sluice_options_init_sized(&o.options, longer);
  CHECK(o.options.struct_size == longer);
  CHECK(o.options.linger_ms == 5000);
  for (i = 0; i < sizeof o.unknown; ++i) CHECK(o.unknown[i] == 0);
  o.options.reducers = "127.0.0.1:1";
  o.options.session_id[3] = 7;
  o.options.ranks = 1;
  o.options.connect_timeout_ms = 1;
  CHECK(create(&o.options, text) != SLUICE_UNSUPPORTED);
  CHECK(strstr(text, "reducer 127.0.0.1:1") != NULL); /* the library tried to connect */
  o.unknown[5] = 1;
  CHECK(create(&o.options, text) == SLUICE_UNSUPPORTED);
  CHECK(strstr(text, "newer version") != NULL);

  memset(&o, 0x5a, sizeof o);
  sluice_options_init_sized(&o.options, sizeof(size_t) - 1); /* no room for struct_size */
  CHECK(((const unsigned char*)&o)[0] == 0x5a);
  sluice_options_init_sized(NULL, longer);
}

static void variables(void) {
  char text[256];
  sluice_options o;
  setenv("SLUICE_JOIN_TIMEOUT", "90s", 1);
  sluice_options_init(&o);
  CHECK(o.join_timeout_ms == 90000);
  setenv("SLUICE_JOIN_TIMEOUT", "90", 1);
  o = valid_options();
  CHECK(o.join_timeout_ms == 60000);
  CHECK(create(&o, text) == SLUICE_INVALID_ARGUMENT);
  CHECK(strstr(text, "SLUICE_JOIN_TIMEOUT") != NULL);
  unsetenv("SLUICE_JOIN_TIMEOUT");
}

static void null_session(void) {
  float x = 0;
  int done = 7;
  sluice_request request = 7;
  sluice_stats stats;
  char text[16] = "old";
  memset(&stats, 0, sizeof stats);
  CHECK(sluice_allreduce_async(NULL, &x, &x, 1, SLUICE_F32, SLUICE_SUM, &request) == SLUICE_INVALID_ARGUMENT);
  CHECK(request == 0);
  CHECK(sluice_allreduce(NULL, &x, &x, 1, SLUICE_F32, SLUICE_SUM) == SLUICE_INVALID_ARGUMENT);
  CHECK(sluice_test(NULL, 1, &done) == SLUICE_INVALID_ARGUMENT);
  CHECK(done == 0);
  CHECK(sluice_wait(NULL, 1, 0) == SLUICE_INVALID_ARGUMENT);
  CHECK(sluice_progress(NULL) == SLUICE_INVALID_ARGUMENT);
  CHECK(sluice_session_error(NULL, text, sizeof text) == SLUICE_INVALID_ARGUMENT);
  CHECK(text[0] == '\0');
  CHECK(sluice_session_stats(NULL, &stats) == SLUICE_INVALID_ARGUMENT);
  CHECK(sluice_session_close(NULL) == SLUICE_OK);
}

static void texts(void) {
  int i;
  CHECK(strcmp(sluice_version(), EXPECTED_VERSION) == 0);
  CHECK(strcmp(sluice_status_string(SLUICE_MISMATCH), "mismatch") == 0);
  for (i = -1; i < 20; ++i) CHECK(sluice_status_string((sluice_status)i)[0] != '\0');
}

int main(void) {
  options();
  other_sizes();
  variables();
  null_session();
  texts();
  if (failures == 0) printf("all checks passed\n");
  return failures == 0 ? 0 : 1;
}
