/* usage: c_client session|store [OPTION=VALUE...]: opens a session of one rank, or a store, with these fields
 * of its options and the reducers of SLUICE_REDUCERS. Prints the error. */
#include <sluice/store.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct field {
  const char* name;
  size_t in_session;
  size_t in_store;
};
#define FIELD(name) \
  { #name, offsetof(sluice_options, name), offsetof(sluice_store_options, name) }
static const struct field kFields[] = {FIELD(job), FIELD(tenant), FIELD(key_file), FIELD(token_file),
                                       FIELD(tls), FIELD(tls_ca), FIELD(tls_cert), FIELD(tls_key)};

int main(int count, char** arguments) {
  sluice_options session_options;
  sluice_store_options store_options;
  sluice_session* session = NULL;
  sluice_store* store = NULL;
  sluice_status status;
  char error[1024] = "";
  int i;
  size_t f;
  const int is_store = count > 1 && strcmp(arguments[1], "store") == 0;

  sluice_options_init(&session_options);
  sluice_store_options_init(&store_options);
  session_options.session_id[0] = 1;
  session_options.ranks = 1;
  for (i = 2; i < count; ++i) {
    char* const equals = strchr(arguments[i], '=');
    int found = 0;
    if (equals == NULL) return 2;
    *equals = '\0';
    for (f = 0; f < sizeof kFields / sizeof kFields[0]; ++f) {
      if (strcmp(kFields[f].name, arguments[i]) != 0) continue;
      *(const char**)((char*)&session_options + kFields[f].in_session) = equals + 1;
      *(const char**)((char*)&store_options + kFields[f].in_store) = equals + 1;
      found = 1;
    }
    if (!found) return 2;
  }
  status = is_store ? sluice_store_open(&store_options, &store, error, sizeof error)
                    : sluice_session_create(&session_options, &session, error, sizeof error);
  fprintf(stderr, "%s\n", error);
  sluice_store_close(store);
  if (session != NULL) sluice_session_close(session);
  return status == SLUICE_OK ? 0 : 1;
}
