/* What a driver looks like that lacks nearly everything. */
int cuInit(unsigned int flags) {  // NOLINT(readability-identifier-naming): the driver's name
  return flags == 0 ? 0 : 1;
}
