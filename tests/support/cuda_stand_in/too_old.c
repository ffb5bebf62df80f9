/* A driver library that has only one of the needed symbols. */
int cuInit(unsigned int flags) {  // NOLINT(readability-identifier-naming): the driver's name
  return flags == 0 ? 0 : 1;
}
