// Replacements for functions of glibc newer than 2.34 that the static libstdc++ and libgcc need: the oldest
// supported distributions have glibc 2.34. Part of each program and library that sluice_static_runtime()
// links; hidden, so that other libraries of the process keep the functions of their glibc.
#include <dlfcn.h>
#include <link.h>
#include <sys/random.h>

#include <cstdint>
#include <cstring>

#if __GLIBC_PREREQ(2, 35)

namespace {

struct Search {
  uintptr_t address;
  dl_find_object* found;
};

int visit_object(dl_phdr_info* object, size_t, void* argument) {
  auto& search = *static_cast<Search*>(argument);
  const ElfW(Phdr)* frames = nullptr;
  bool inside = false;
  uintptr_t begin = UINTPTR_MAX, end = 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = object->dlpi_phdr[i];
    if (header.p_type == PT_GNU_EH_FRAME) frames = &header;
    if (header.p_type != PT_LOAD) continue;
    const uintptr_t from = object->dlpi_addr + header.p_vaddr;
    const uintptr_t to = from + header.p_memsz;
    inside |= from <= search.address && search.address < to;
    begin = from < begin ? from : begin;
    end = to > end ? to : end;
  }
  if (!inside || frames == nullptr) return 0;
  std::memset(search.found, 0, sizeof *search.found);
  search.found->dlfo_map_start = reinterpret_cast<void*>(begin);
  search.found->dlfo_map_end = reinterpret_cast<void*>(end);
  search.found->dlfo_eh_frame = reinterpret_cast<void*>(object->dlpi_addr + frames->p_vaddr);
  return 1;
}

}  // namespace

// For the unwinder: finds the loaded object that contains an address.
extern "C" int _dl_find_object(void* address, dl_find_object* found) noexcept {
  Search search{.address = reinterpret_cast<uintptr_t>(address), .found = found};
  return dl_iterate_phdr(&visit_object, &search) == 1 ? 0 : -1;
}

#endif

#if __GLIBC_PREREQ(2, 36)

// For std::random_device, which Sluice does not use.
extern "C" uint32_t arc4random() noexcept {
  uint32_t value = 0;
  while (getrandom(&value, sizeof value, 0) != sizeof value) {
  }
  return value;
}

#endif
