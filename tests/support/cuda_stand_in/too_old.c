/* What a driver looks like that lacks nearly everything. */
int cuInit(unsigned int flags) {
  return flags == 0 ? 0 : 1;
}
